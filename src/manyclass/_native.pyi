"""Types of the native core; the NumPy twins in `_reference_*.py` have the same classes."""

from manyclass._reference.class_tree import ReferenceTree
from manyclass._reference.index import ReferenceIndex
from manyclass._reference.row_products import ReferencePairs
from manyclass._reference.row_update import Floats, Ids, RowRule

def simd() -> str: ...
def available_simd() -> list[str]: ...
def use_simd(name: str) -> bool: ...

class Index(ReferenceIndex): ...
class PairList(ReferencePairs): ...
class ClassTree(ReferenceTree): ...

def update_rows(
    rule: RowRule,
    weight: Floats,
    first: Floats | None,
    second: Floats | None,
    ids: Ids,
    gradient: Floats,
    threads: int,
) -> None: ...
