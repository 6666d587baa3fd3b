"""The store: plans, jobs, templates, epochs, operations and API keys, on SQLite or PostgreSQL."""

from api.store.acknowledgements import AcknowledgementRecord
from api.store.appending import Appended, NewEpoch, Reported
from api.store.engine import parse_url
from api.store.epoch_damage import DamagedEpoch, Report
from api.store.epochs import Cause, EpochRecord, EventRecord
from api.store.jobs import DamagedJob, JobEntry, JobRecord, Mode
from api.store.keys import ApiKeyRecord
from api.store.operations import FinalState, OperationRecord, OperationState
from api.store.plans import Document
from api.store.pruning import Retention
from api.store.store import Store
from api.store.template_file import ImportCounts
from api.store.template_transfer import ExportCounts
from api.store.templates import TemplateFacts, TemplateRecord
from api.store.watch import EpochFeed

__all__ = [
    "AcknowledgementRecord",
    "ApiKeyRecord",
    "Appended",
    "Cause",
    "DamagedEpoch",
    "DamagedJob",
    "Document",
    "EpochFeed",
    "EpochRecord",
    "EventRecord",
    "ExportCounts",
    "FinalState",
    "ImportCounts",
    "JobEntry",
    "JobRecord",
    "Mode",
    "NewEpoch",
    "OperationRecord",
    "OperationState",
    "Report",
    "Reported",
    "Retention",
    "Store",
    "TemplateFacts",
    "TemplateRecord",
    "parse_url",
]
