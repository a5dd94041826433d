import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support.s3_options import config_on
from support.s3_proxy import Proxy
from support.s3_server import S3Server

from kappa.config import Config
from kappa.errors import ConfigError
from kappa_local import doctor


def config(home: Path, **more: str) -> Config:
    return Config.from_env({"KAPPA_HOME": str(home), "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1"} | more)


def programs_succeed(monkeypatch):
    """Programs in Python, which Spark and Airflow are proved by, end at once and leave what those leave."""
    real = subprocess.run

    def run(command, **how):
        if command[0] != sys.executable or command[2] not in ("-c", "-m"):  # it says what is installed for it
            return real(command, **how)
        if "spark.read" in command[3]:
            write_deltalake(command[4], pa.table({"value": [b"a record"]}))
        return subprocess.CompletedProcess(command, 0, "1.0", "")

    monkeypatch.setattr(doctor.subprocess, "run", run)


def test_missing_java_is_reported_with_a_remedy_and_its_dependents(monkeypatch, tmp_path):
    def none() -> Path:
        raise ConfigError("Install it: `apt-get install openjdk-17-jre-headless`")

    monkeypatch.setattr(doctor, "find_java", none)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=5 << 30))
    programs_succeed(monkeypatch)
    proofs = {proof.name: proof for proof in doctor.checks(config(tmp_path))}
    assert next(iter(proofs)) == "java"
    assert {name for name, proof in proofs.items() if not proof.ok} == {"java", "kafka", "spark"}
    assert "apt-get" in proofs["java"].remedy


@pytest.mark.parametrize("free", [(500 << 20) - 1, None])
def test_without_room_for_temporary_files_their_place_is_named_and_its_dependents(monkeypatch, tmp_path, free):
    def no_folder() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/scratch']")

    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=free or 5 << 30))
    if free is None:
        monkeypatch.setattr(doctor.tempfile, "gettempdir", no_folder)
    programs_succeed(monkeypatch)
    proofs = {proof.name: proof for proof in doctor.checks(config(tmp_path))}
    assert not any(proofs[name].ok for name in ("scratch", "kafka", "spark"))
    assert {proofs[name].remedy for name in ("scratch", "kafka", "spark")} == {
        "Name a folder with room: export TMPDIR=<path>"
    }
    assert ("499 MB free" if free else "No usable temporary directory") in proofs["scratch"].detail


def test_without_airflow_the_command_that_installs_it_is_named(monkeypatch, tmp_path):
    error = f"{sys.executable}: No module named airflow"
    failed = subprocess.CompletedProcess([], 1, "", error)
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: failed)
    proof = doctor._proof("airflow", "", lambda: doctor._airflow(config(tmp_path)))
    assert not proof.ok and error in proof.detail and "pip install 'kappa-replay[local]'" in proof.remedy


def test_a_lake_is_checked_by_writing_and_nothing_stays(tmp_path):
    lake = tmp_path / "lake"
    assert "second writer refused" in doctor._lake(config(tmp_path, KAPPA_LAKE=str(lake)))
    assert not lake.exists()


def test_an_unwritable_lake_is_named_with_a_remedy(tmp_path):
    (tmp_path / "file").touch()
    proof = doctor._proof(
        "lake", "Check KAPPA_LAKE.", lambda: doctor._lake(config(tmp_path, KAPPA_LAKE=f"{tmp_path}/file"))
    )
    assert (proof.ok, proof.remedy) == (False, "Check KAPPA_LAKE.")


def lake_proof(s3: S3Server, tmp_path: Path, proxy: Proxy) -> doctor.Proof:
    return next(proof for proof in doctor.proofs(config_on(proxy.server, tmp_path)) if proof.name == "lake")


def test_a_store_that_refuses_is_named_with_its_own_remedy(s3, tmp_path, proxy, monkeypatch):
    programs_succeed(monkeypatch)
    proxy.refuse("", status=403, code="InvalidAccessKeyId")
    proof = lake_proof(s3, tmp_path, proxy)
    assert not proof.ok and "InvalidAccessKeyId" in proof.detail
    assert proof.remedy.endswith("Check the keys and the policy of the bucket.")
    assert "kappa doctor" not in proof.detail


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_finding_is_not_lost_where_its_traces_cannot_be_removed(s3, tmp_path, proxy, monkeypatch, is_sound):
    programs_succeed(monkeypatch)
    proxy.refuse("", "DELETE", status=403)
    if not is_sound:
        proxy.refuse("/races/", "PUT", status=400, code="InvalidRequest")
    proof = lake_proof(s3, tmp_path, proxy)
    assert not proof.ok and ("InvalidRequest" in proof.detail) is not is_sound
    assert "What this check wrote stays at s3://" in proof.detail and "aws s3 rm --recursive s3://" in proof.detail
    assert "The store refuses" in proof.detail


@pytest.mark.parametrize(("free", "ok"), [(5 << 30, True), ((5 << 30) - 1, False)])
def test_a_full_disk_is_named_with_its_free_space(monkeypatch, tmp_path, free, ok):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    proof = doctor._proof("disk", "Free some space.", lambda: doctor._disk(config(tmp_path)))
    assert (proof.ok, f"{free >> 30} GB free at {tmp_path}" in proof.detail) == (ok, True)


@pytest.mark.broker
def test_every_part_is_checked_by_using_it_and_nothing_stays(monkeypatch, tmp_path):
    # Whether the disk of this machine has room is not what is tested here.
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=5 << 30))
    proofs = doctor.checks(config(tmp_path / "home"))
    assert [proof for proof in proofs if not proof.ok] == []
    assert [proof.name for proof in proofs] == ["java", "disk", "scratch", "lake", "jars", "kafka", "spark", "airflow"]
    assert list((tmp_path / "home").rglob("*")) == []


@pytest.mark.broker
def test_a_doctor_that_is_ended_leaves_no_broker_and_no_files(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    env = {**os.environ, **config(tmp_path / "home").to_env(), "TMPDIR": str(scratch)}
    process = subprocess.Popen([sys.executable, "-m", "kappa", "doctor"], env=env, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (brokers := [one for one in psutil.Process(process.pid).children() if "kafka.Kafka" in one.cmdline()]):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.terminate()
    assert process.wait(120) != 0
    assert not [one for one in brokers if one.is_running()] and not list(scratch.glob("kappa-doctor-*"))


@pytest.mark.broker
def test_a_running_broker_is_checked_and_nothing_stays(kafka, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=5 << 30))
    programs_succeed(monkeypatch)
    proofs = doctor.checks(config(tmp_path / "home", KAPPA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers))
    assert [proof for proof in proofs if not proof.ok] == []
    assert [proof.name for proof in proofs] == [
        *("java", "disk", "scratch", "lake", "jars", "kafka", "topics", "times", "spark", "airflow")
    ]
    assert list((tmp_path / "home").rglob("*")) == []
    assert kafka.topics("kappa.doctor.") == ()


def test_a_login_without_a_right_to_settings_of_brokers_is_a_warning(monkeypatch, tmp_path):
    class Refusing(nullcontext):
        def topic_configs(self, topics):
            return {}

        def broker_config(self):
            raise ConfigError("localhost:9092 does not allow it: reading settings of a broker. Grant the access.")

    monkeypatch.setattr(doctor, "Broker", lambda servers: Refusing(Refusing()))
    proof = doctor.far_times(config(tmp_path, KAPPA_TOPOLOGIES=str(tmp_path / "topologies")))
    assert (proof.name, proof.ok) == ("times", True) and "Grant the access" in proof.remedy


@pytest.mark.broker
def test_a_source_topic_that_accepts_far_future_records_is_a_warning(kafka, topic, tmp_path):
    near, far = topic(), topic(message_timestamp_after_max_ms=str(2 * 86_400_000))
    (tmp_path / "topologies").mkdir()
    for name, read in (("near", near), ("far", far)):
        (tmp_path / "topologies" / f"{name}.py").write_text(
            "from kappa import Append, Source, Topology\n"
            f"found = Topology(name='test.{name}', version='1', sources=[Source(topic='{read}', schema='id STRING')],\n"
            f"    outputs=[Append(name='ids', schema='id STRING')], step=lambda slice: {{'ids': slice['{read}']}})\n"
        )
    servers = kafka.bootstrap_servers

    proof = doctor.far_times(
        config(tmp_path, KAPPA_BOOTSTRAP_SERVERS=servers, KAPPA_TOPOLOGIES=str(tmp_path / "topologies"))
    )

    assert proof.ok and far in proof.detail and near not in proof.detail
    assert "message.timestamp.after.max.ms=172800000" in proof.detail
    assert proof.remedy == (
        f"Lower it to an hour: kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics "
        f"--entity-name {far} --add-config message.timestamp.after.max.ms=3600000"
    )
    (tmp_path / "topologies" / "far.py").unlink()
    again = doctor.far_times(
        config(tmp_path, KAPPA_BOOTSTRAP_SERVERS=servers, KAPPA_TOPOLOGIES=str(tmp_path / "topologies"))
    )
    assert (again.ok, again.remedy) == (True, "")
