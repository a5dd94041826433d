"""The certificate as bars of offsets. Pure."""

from __future__ import annotations

from typing import Any

from kappa.replay.proof.certificate import Certificate, PartitionProof
from kappa_web.pages import charts, words
from kappa_web.pages.charts import Piece

#: Number of problems on the page; the command line shows all.
_PROBLEMS = 20


def page(certificate: Certificate) -> dict[str, Any]:
    """What the page shows."""
    topics: dict[str, list[PartitionProof]] = {}
    for proof in certificate.partitions:
        topics.setdefault(proof.topic, []).append(proof)
    epochs = sorted({span.epoch for proof in certificate.partitions for span in proof.spans})
    return {
        "certificate": certificate,
        "problems": certificate.problems[:_PROBLEMS],
        "codes": [(epoch, [code for code in codes if code]) for epoch, codes in certificate.codes.items()],
        "topics": [(topic, _bars(proofs)) for topic, proofs in topics.items()],
        "epochs": [(epoch, charts.colour(epoch), _slices(certificate, epoch)) for epoch in epochs],
    }


def _bars(proofs: list[PartitionProof]) -> list[dict[str, Any]]:
    """A bar for each partition, all on one scale."""
    first = min((span.start for proof in proofs for span in proof.spans), default=0)
    last = max((span.end for proof in proofs for span in proof.spans), default=0)
    whole = max(1, last - first)
    rows = []
    for proof in proofs:
        pieces = [
            Piece(
                start=(span.start - first) / whole,
                end=(span.end - first) / whole,
                kind=f"span {charts.colour(span.epoch)}",
                title=f"epoch {span.epoch}: offsets {span.start:,} to {span.end:,}, "
                f"slices {span.seq_first:,} to {span.seq_last:,}",
                label=f"epoch {span.epoch}",
            )
            for span in proof.spans
        ]
        summary = ", ".join(f"{span.start:,} to {span.end:,} by epoch {span.epoch}" for span in proof.spans)
        rows.append(
            {
                "partition": proof.partition,
                "bar": charts.bar(pieces, title=f"partition {proof.partition}: {summary or 'nothing sent'}", height=24),
                "spans": proof.spans,
                "end": words.count(proof.spans[-1].end) if proof.spans else "nothing sent",
            }
        )
    return rows


def _slices(certificate: Certificate, epoch: int) -> int:
    """Offsets that an epoch sent."""
    return sum(span.end - span.start for proof in certificate.partitions for span in proof.spans if span.epoch == epoch)
