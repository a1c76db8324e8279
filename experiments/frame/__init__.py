"""What every experiment stands on, written once.

stages.py       what an experiment is (`Experiment`, `Stage`, `Options`, `Run`), and the runner
records.py      the file of records: what is done, and what everything else is drawn from
terminal.py     what a run says in the terminal: stages and times beforehand, a table at the end
drawing.py      the look of all figures, and the one way to draw lines with their names at their ends
page.py         the parts of a report and the one file they become (page.html, inline_svg.py)
run_section.py  the section "What was run" of every page
documents.py    figures in README and docs, written from the committed records
wording.py      how numbers are said
needs.py        what must be installed for what
whole_folder.py a folder of files that is there whole or not at all
"""
