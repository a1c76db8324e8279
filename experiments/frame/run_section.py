"""The section "What was run" of every page: machine, versions, commits, seed, and the time of every stage."""

from experiments.frame.page import Section, Table, Text
from experiments.frame.records import Record, Records
from experiments.frame.wording import duration, whole
from manyclass._machine import caches_in_words

TITLE, SHORT = "What was run", "Run"


def run_section(records: Records) -> Section:
    """Return how to repeat the run, and what it took."""
    cards = records.select(kind="card")
    if not cards:
        return Section(TITLE, "Nothing yet.", short=SHORT)
    machine, options = cards[-1]["machine"], cards[-1]["options"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version != "missing")
    chosen = ", ".join(f"{name} {value}" for name, value in options.items() if value and name != "seed") or "none"
    threads = sorted({session["threads"] for session in cards})
    commits = dict.fromkeys(card["commit"][:10] + (" with changes" if card["dirty"] else "") for card in cards)
    rows = [
        ["machine", f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB"],
        *instructions_and_caches(machine),
        ["threads", ", ".join(map(str, threads))],
        ["commit", ", ".join(commits)],
        ["versions", f"Python {machine['python']}, {versions}"],
        ["seed", str(cards[-1]["seed"])],
        ["options", chosen],
        ["started", cards[0]["time"]],
        ["sessions", whole(len(cards))],
    ]
    ends = [end["stage"] for end in records.select(kind="stage_end") if "seconds" in end]  # the oldest runs lack it
    seconds = {stage: records.seconds_spent(stage) for stage in ends}
    spent = [[stage, duration(taken)] for stage, taken in seconds.items()]
    spent.append(["together", duration(sum(seconds.values()))])
    stages = Table(["stage", "time"], spent, "Time of the stages that are done.", emphasised={len(spent) - 1})
    again = Text(f"`{command_of(cards[-1])}` runs it again.", quiet=True)
    return Section(TITLE, "", [Table(["", ""], rows, "", "ll"), *([stages] if ends else []), again], SHORT)


def command_of(card: Record) -> str:
    """Return the command that runs the same again."""
    options = card["options"]
    quick = " --quick" if options["quick"] else ""
    heads = "".join(f" --head {head}" for head in options["heads"])
    data = " --data …" if options["data"] else ""
    data += " --corpus …" if options.get("corpus") else ""
    for name in ("phrases", "min_count"):
        data += f" --{name.replace('_', '-')} {options[name]}" if options.get(name) is not None else ""
    chosen = f"{quick}{heads}{data} --seed {card['seed']} --threads {card['threads']}"
    return f"python -m experiments {card['experiment']}{chosen}"


def machine_in_words(records: Records, stage: str | None = None) -> str:
    """Return on what a stage ran last, or the last session, for a sentence: 2 cores of an AMD EPYC, 2 threads."""
    card = card_of(records, stage)
    if card is None:
        return "no machine yet"
    machine, threads = card["machine"], card["threads"]
    instructions = f" with {machine['instruction_set']}" if "instruction_set" in machine else ""
    return f"{machine['cores']} cores of an {machine['cpu']}{instructions}, {threads} thread{'s' * (threads != 1)}"


def card_of(records: Records, stage: str | None) -> Record | None:
    """Return the card of the session that started a stage last; of the last session for none, or an unknown one."""
    newest = started = recorded = None
    for record in records.all():
        if record.get("kind") == "card":
            newest = record
        if stage is not None and record.get("stage") == stage:
            if record.get("kind") == "stage_start":
                started = newest
            recorded = newest  # of old records, which do not say when a stage started
    return started or recorded or newest


def instructions_and_caches(machine: Record) -> list[list[str]]:
    """Return the rows of a table that say them; the oldest records lack both."""
    rows = []
    if "instruction_set" in machine:
        rows.append(["instruction set", machine["instruction_set"]])
    if machine.get("cache_kb"):
        rows.append(["caches", caches_in_words(machine["cache_kb"])])
    return rows
