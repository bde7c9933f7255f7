"""The jobs of a demo as processes of their own: `publish` and `work` as plain Python, all others by spark-submit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from spark_queue.session import spark_home, worker_python

ROOT = Path(__file__).parent.parent
SPARKQ = (sys.executable, "-m", "spark_queue.cli")

#: Short jobs on two cores: the thorough compiler and the parallel collector would cost more than they bring.
JAVA_OPTIONS = "-Dlog4j2.configurationFile=conf/log4j2.properties -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: The jobs that need no Spark, and how every other one is started.
PLAIN = frozenset({"publish", "work"})
SPARK_SUBMIT = (
    *(str(spark_home() / "bin" / "spark-submit"), "--properties-file", "conf/spark-defaults.conf"),
    *("--master", "local[2]", "--driver-memory", "1500m", "--driver-java-options", JAVA_OPTIONS),
    *("--conf", "spark.ui.enabled=false"),
)


class Submitted:
    """A job that runs: a process group of its own, with its output in a file."""

    def __init__(self, job: str, *arguments: str, log: Path) -> None:
        self._log = log
        #: Whether it was killed here.
        self.killed = False
        runner = (sys.executable,) if job in PLAIN else SPARK_SUBMIT
        command = [*runner, f"jobs/{job}.py", *arguments]
        # Spark's workers must be the Python that has spark_queue.
        environment = {**os.environ, **worker_python()}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def running(self) -> bool:
        """Whether it still runs; a job that failed ends the demo with the end of its output."""
        code = self._process.poll()
        if code:
            text = self._log.read_text(errors="replace")[-4_000:]
            raise SystemExit(f"{text}\n{self._log.stem} failed with exit code {code}; its whole output is in {self._log}")
        return code is None

    def kill(self) -> None:
        """Kill the JVM and all Pythons of its group at once, as a power switch would."""
        self.killed = True
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
