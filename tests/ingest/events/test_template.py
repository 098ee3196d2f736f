"""The AWS template keeps the promises that the intake relies on."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy" / "aws"
Json = dict[str, Any]


class Loader(yaml.SafeLoader):
    """Reads `!Ref x` and its like as {"Ref": x}."""


def tagged(loader: Loader, tag: str, node: yaml.Node) -> Json:
    match node:
        case yaml.ScalarNode():
            return {tag: loader.construct_scalar(node)}
        case yaml.SequenceNode():
            return {tag: loader.construct_sequence(node, deep=True)}
    raise AssertionError(node)


Loader.add_multi_constructor("!", tagged)


@pytest.fixture(scope="module")
def resources() -> Json:
    read = yaml.load((DEPLOY / "template.yaml").read_text(), Loader)
    found: Json = read["Resources"]
    return found


def test_a_message_outlives_six_timeouts_and_is_given_up_after_five(resources: Json) -> None:
    queue, function = (resources[name]["Properties"] for name in ("EventsQueue", "IntakeFunction"))
    assert queue["VisibilityTimeout"] >= 6 * function["Timeout"]
    redrive = queue["RedrivePolicy"]
    assert redrive["maxReceiveCount"] == 5
    assert redrive["deadLetterTargetArn"] == {"GetAtt": "DeadEventsQueue.Arn"}
    environment = function["Environment"]["Variables"]
    assert environment["RINGWAY_EVENTS_MAX_RECEIVES"] == "5"
    dead = resources["DeadEventsQueue"]["Properties"]
    assert dead["MessageRetentionPeriod"] == 14 * 24 * 3600


def test_failed_records_are_reported_alone_and_few_run_at_once(resources: Json) -> None:
    function = resources["IntakeFunction"]["Properties"]
    [event] = function["Events"].values()
    assert event["Type"] == "SQS"
    assert event["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert 2 <= event["Properties"]["ScalingConfig"]["MaximumConcurrency"] <= 1000
    assert event["Properties"]["BatchSize"] <= 10
    assert "ReservedConcurrentExecutions" not in function
    assert function["MemorySize"] >= 512


def test_nothing_is_allowed_that_the_function_does_not_do(resources: Json) -> None:
    [policy] = resources["IntakeFunction"]["Properties"]["Policies"]
    for statement in policy["Statement"]:
        actions = statement["Action"]
        assert statement["Effect"] == "Allow"
        assert "*" not in "".join([actions] if isinstance(actions, str) else actions)
        assert statement["Resource"] != "*"
    allowed = {statement["Sid"] for statement in policy["Statement"]}
    assert "TellMissingFromForbidden" in allowed, "without ListBucket a missing key answers 403"
    [statement] = resources["EventsQueuePolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert set(statement["Condition"]) == {"ArnEquals", "StringEquals"}


@pytest.mark.parametrize("name", ["DocumentsBucket", "BlobsBucket"])
def test_buckets_are_encrypted_closed_and_outlive_the_stack(resources: Json, name: str) -> None:
    bucket = resources[name]
    assert bucket["DeletionPolicy"] == "Retain"
    [rule] = bucket["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert all(bucket["Properties"]["PublicAccessBlockConfiguration"].values())


def test_the_bucket_tells_of_all_that_changes_content(resources: Json) -> None:
    told = resources["DocumentsBucket"]["Properties"]["NotificationConfiguration"]
    events = {each["Event"] for each in told["QueueConfigurations"]}
    assert events == {"s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*"}
    assert resources["DocumentsBucket"]["DependsOn"] == "EventsQueuePolicy"


def test_every_setting_of_the_function_exists(resources: Json) -> None:
    from ingest.events.settings import settings_from as event_settings_from
    from ingest.settings import settings_from

    environment = resources["IntakeFunction"]["Properties"]["Environment"]["Variables"]
    plain = {name: value if isinstance(value, str) else "9" for name, value in environment.items()}
    assert settings_from(plain).max_file_bytes == 9
    assert event_settings_from(plain).max_receives == 5


@pytest.mark.timeout(60)
def test_cfn_lint_has_nothing_to_say() -> None:
    linter = Path(sys.executable).with_name("cfn-lint")
    if not linter.exists():
        pytest.skip("cfn-lint is not installed")
    done = subprocess.run(
        [linter, DEPLOY / "template.yaml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
