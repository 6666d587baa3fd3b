"""The store: all of its tables behind one object."""

from __future__ import annotations

from api.store.acknowledgements import AcknowledgementRows
from api.store.appending import AppendingRows
from api.store.epoch_damage import EpochDamageRows
from api.store.jobs import JobRows
from api.store.keys import KeyRows
from api.store.looking import LookingRows
from api.store.operations import OperationRows
from api.store.plans import PlanRows
from api.store.pruning import PruningRows
from api.store.template_transfer import TemplateTransferRows
from api.store.versions import schema_version


class Store(
    PlanRows,
    TemplateTransferRows,
    JobRows,
    EpochDamageRows,
    AppendingRows,
    AcknowledgementRows,
    OperationRows,
    KeyRows,
    PruningRows,
    LookingRows,
):
    """Everything the service remembers, in one SQLite file or PostgreSQL database.

    Safe to use from several threads, and by several servers at once. What a method that writes has returned is durable.
    See :class:`api.store.engine.Database` for how it is opened.
    """

    def check(self) -> None:
        """Read the schema version, to see that the store answers.

        Raises
        ------
        StoreError
            If it does not.
        """
        self._read(schema_version)
