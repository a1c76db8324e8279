"""Load mutated index files and use what loads: `fuzz_loader.py FILE CASES` prints how many were refused and searched.

Run by test_sanitizers.py in a process of its own. Seeded, so a failure comes back; any exception but the library's own
ends the run with a traceback that names the mutation.
"""

import copy
import json
import random
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from manyclass import ClassIndex, ManyclassError

PREAMBLE = struct.Struct("<8sIIQI")
INTERESTING: list[Any] = [0, 1, -1, 2, 15, 16, 17, 31, 32, 33, 127, 255, 256, 4096, 65_535, 65_536, 2**24, 2**31, 2**32]
INTERESTING += [2**63, 0.5, -0.0, 1e38, 1e300, None, True, False, "", "fast", "exact", "logistic", [], {}]


def take_apart(content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return the header of a file and the bytes of its sections."""
    length = PREAMBLE.unpack_from(content)[2]
    header = json.loads(content[32 : 32 + length])
    start = -(-(32 + length) // 64) * 64
    return header, [content[start + s["offset"] : start + s["offset"] + s["nbytes"]] for s in header["sections"]]


def put_together(header: dict[str, Any], parts: list[bytes]) -> bytes:
    """Return a file of these parts with every offset, length and checksum made right."""
    data = b""
    for section, part in zip(header["sections"], parts, strict=True):
        data = data.ljust(-(-len(data) // 64) * 64, b"\0")
        section |= {"offset": len(data), "nbytes": len(part), "crc32": f"{zlib.crc32(part):08x}"}
        data += part
    encoded = json.dumps(header).encode()
    start = -(-(32 + len(encoded)) // 64) * 64
    preamble = PREAMBLE.pack(b"\x89MCLS\r\n\x1a", 1, len(encoded), start + len(data), zlib.crc32(encoded))
    return (preamble + struct.pack("<I", zlib.crc32(preamble)) + encoded).ljust(start, b"\0") + data


def mutate(header: dict[str, Any], parts: list[bytes], rng: random.Random) -> str:
    """Change one to three things in place and say what was done."""
    done = []
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(["bytes", "bytes", "bytes", "fill", "setting", "meta", "section", "shape", "drop"])
        at = rng.randrange(len(parts))
        name = header["sections"][at]["name"]
        if kind == "bytes" and parts[at]:
            raw = bytearray(parts[at])
            for _ in range(rng.choice([1, 1, 4, 64])):
                raw[rng.randrange(len(raw))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            parts[at] = bytes(raw)
        elif kind == "fill" and parts[at]:
            word = rng.choice([b"\0", b"\xff", b"\x7f", b"\x80", b"\1\0\0\0\0\0\0\0", b"\3\0\0\0\0\0\0\0"])
            parts[at] = (word * len(parts[at]))[: len(parts[at])]
        elif kind == "setting" and isinstance(header["meta"].get("config"), dict):
            name = rng.choice(list(header["meta"]["config"]))
            header["meta"]["config"][name] = rng.choice(INTERESTING)
        elif kind == "meta":
            name = rng.choice(list(header["meta"]))
            header["meta"][name] = rng.choice([*INTERESTING, [1e300, 0], [0, 0], [-1, 1], ["a", "b"], [1e-300, 1e30]])
        elif kind == "section":
            header["sections"][at]["dtype"] = rng.choice(["u1", "u2", "i4", "u4", "f4", "f8", "i8", "bf16", "f2"])
        elif kind == "shape":  # also longer and shorter sections, with the header saying so
            count = rng.choice([0, 1, 2, 11, 13, 24, 1000])
            shape = header["sections"][at]["shape"]
            size = len(parts[at]) // max(1, shape[0])
            header["sections"][at]["shape"] = [count, *shape[1:]]
            parts[at] = (parts[at] * (count + 1))[: count * size] if parts[at] else b""
        elif kind == "drop" and len(parts) > 1:
            del parts[at], header["sections"][at]
        done.append(f"{kind} {name}")
    return ", ".join(done)


def use(index: ClassIndex) -> None:
    """Search, refresh and save what was loaded: wherever a bad number could do harm."""
    queries = np.random.default_rng(0).normal(size=(70, index.features)).astype(np.float32)
    index.search(queries, 1)
    index.search(queries[0], 1, candidates=2, threads=2)
    index.retrieve(queries[:3], 5)
    index.refresh(np.arange(index.classes) // 2)
    index.append(queries[:2], names=None if index.names is None else ["a", "b"])
    index.remove(np.arange(index.classes)[:1])
    index.search(queries, 1)
    index.memory_report()


def main() -> None:
    good, cases = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
    header, parts = take_apart(good)
    refused = searched = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hostile.mc"
        path.write_bytes(put_together(copy.deepcopy(header), parts))
        use(ClassIndex.load(path))
        for case in range(cases):
            rng = random.Random(case)
            mutated, pieces = copy.deepcopy(header), list(parts)
            what = mutate(mutated, pieces, rng)
            path.write_bytes(put_together(mutated, pieces))
            try:
                index = ClassIndex.load(path, mmap=rng.random() < 0.3)
                use(index)
                searched += 1
            except ManyclassError:
                refused += 1
            except BaseException:
                print(f"case {case}: {what}", file=sys.stderr)
                raise
    print(refused, searched)


if __name__ == "__main__":
    main()
