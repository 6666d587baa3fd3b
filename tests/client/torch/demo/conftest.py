"""All tests here need torch, the extra of replan-client: without it none is collected."""

from importlib.util import find_spec

collect_ignore_glob = ["test_*.py"] if find_spec("torch") is None else []
