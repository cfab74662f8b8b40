"""Generated graphs that look like molecules, with questions about their functional groups.

Atoms have one feature (the element), and so do bonds (single, double, aromatic). The questions are
about groups of atoms that can be found in the graph. One tenth of the answers are missing (NaN), as
in assay data. Groups are joined without violating valences; hydrogen is left out.
"""

import numpy as np

from .graphs import GraphsTuple

ELEMENTS = ("C", "N", "O", "S", "F", "Cl")
SINGLE, DOUBLE, AROMATIC = range(3)
QUESTIONS = (
    "carboxyl", "amide", "ether", "aromatic nitrogen", "halogen on a ring", "two rings",
    "five-membered ring", "branched chain",
)  # fmt: skip


class Molecule:
    """Atoms and bonds under construction."""

    def __init__(self):
        self.atoms: list[str] = []
        self.bonds: list[tuple[int, int, int]] = []
        self.rings: list[list[int]] = []

    def add(self, element: str, to: int | None = None, bond: int = SINGLE) -> int:
        """Add an atom that is bound to another atom, and return its number."""
        self.atoms.append(element)
        if to is not None:
            self.bonds.append((to, len(self.atoms) - 1, bond))
        return len(self.atoms) - 1

    def add_ring(self, rng, to: int | None) -> int:
        """Add a ring of five or six atoms, aromatic or not, and return a free atom of the ring."""
        size, bond = (5, 6)[int(rng.random() < 0.65)], (SINGLE, AROMATIC)[int(rng.random() < 0.6)]
        first = self.add("C", to)
        ring = [first]
        for _ in range(size - 1):
            element = "N" if rng.random() < 0.12 else "C"
            ring.append(self.add(element, ring[-1], bond))
        self.bonds.append((ring[-1], first, bond))
        self.rings.append(ring)
        free = [i for i in ring[1:] if self.atoms[i] == "C"]
        return free[rng.integers(len(free))] if free else first

    def neighbours(self, atom: int) -> list[tuple[int, int]]:
        """Return the (atom, bond) pairs around an atom."""
        return [(b if a == atom else a, kind) for a, b, kind in self.bonds if atom in (a, b)]


def decorate(rng, molecule: Molecule, at: int) -> None:
    """Attach to an atom a group that a question is about, or a similar decoy."""
    kind = rng.integers(7)
    if kind < 3:  # carboxyl, amide, or just a ketone
        carbon = molecule.add("C", at)
        molecule.add("O", carbon, DOUBLE)
        molecule.add(("O", "N", "C")[kind], carbon)
    elif kind == 3:  # ether
        molecule.add("C", molecule.add("O", at))
    elif kind == 4:  # halogen
        molecule.add(("F", "Cl")[rng.integers(2)], at)
    elif kind == 5:  # hydroxyl or amine
        molecule.add("ON"[rng.integers(2)], at)
    else:
        molecule.add("C", molecule.add("S", at))


def generate(rng) -> Molecule:
    """Generate zero to three rings joined by chains, with groups at random atoms."""
    molecule = Molecule()
    end: int | None = None
    for _ in range(rng.integers(1, 4)):
        if rng.random() < 0.6:
            end = molecule.add_ring(rng, end)
        if rng.random() < 0.35:
            decorate(rng, molecule, end if end is not None else molecule.add("C"))
        for _ in range(rng.integers(1, 4)):
            end = molecule.add("C", end)
            if rng.random() < 0.15:
                molecule.add("C", end)
            if rng.random() < 0.1:
                decorate(rng, molecule, end)
    return molecule


def answers(molecule: Molecule) -> list[bool]:
    """Return the answers to QUESTIONS for a molecule."""
    atoms, in_ring = molecule.atoms, {i for ring in molecule.rings for i in ring}
    around = [molecule.neighbours(i) for i in range(len(atoms))]
    kinds = [sorted((atoms[j], bond) for j, bond in found) for found in around]
    carbonyl = [atoms[i] == "C" and ("O", DOUBLE) in kinds[i] for i in range(len(atoms))]
    aromatic = [any(bond == AROMATIC for _, bond in found) for found in around]

    def any_atom(test):
        return any(test(i) for i in range(len(atoms)))

    return [
        any_atom(lambda i: carbonyl[i] and ("O", SINGLE) in kinds[i]),
        any_atom(lambda i: carbonyl[i] and ("N", SINGLE) in kinds[i]),
        any_atom(lambda i: kinds[i] == [("C", SINGLE)] * 2 and atoms[i] == "O"
                 and not any(carbonyl[j] for j, _ in around[i])),
        any_atom(lambda i: atoms[i] == "N" and aromatic[i]),
        any_atom(lambda i: atoms[i] in ("F", "Cl") and any(j in in_ring for j, _ in around[i])),
        len(molecule.rings) >= 2,
        any(len(ring) == 5 for ring in molecule.rings),
        any_atom(lambda i: i not in in_ring and kinds[i].count(("C", SINGLE)) >= 3),
    ]  # fmt: skip


def as_graph(molecule: Molecule, labels) -> GraphsTuple:
    """Convert a molecule to arrays, each bond in both directions; `globals` are the labels."""
    bonds = np.array(molecule.bonds, np.int32).reshape(-1, 3)
    nodes = np.array([ELEMENTS.index(a) for a in molecule.atoms], np.int32)[:, None]
    return GraphsTuple(
        nodes=nodes, edges=np.concatenate([bonds[:, 2:], bonds[:, 2:]]),
        receivers=np.concatenate([bonds[:, 1], bonds[:, 0]]),
        senders=np.concatenate([bonds[:, 0], bonds[:, 1]]),
        globals=np.asarray(labels, np.float32)[None],
        n_node=np.array([len(nodes)], np.int32), n_edge=np.array([2 * len(bonds)], np.int32),
    )  # fmt: skip


def molecules(count: int, seed: int = 0) -> list[GraphsTuple]:
    """Generate molecules with one tenth of the answers missing; the seed determines them."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        molecule = generate(rng)
        labels = np.array(answers(molecule), np.float32)
        found.append(as_graph(molecule, np.where(rng.random(len(labels)) < 0.1, np.nan, labels)))
    return found
