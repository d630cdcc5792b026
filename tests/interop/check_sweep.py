#!/usr/bin/env python3
"""Runs sweeps on a real Ray cluster of two nodes, and compares them with `tanren sweep` and `tanren run`.

    check_sweep.py TANREN_BINARY EMPTY_FOLDER

ASHA on examples/sweep/digits.toml while a worker of Ray is killed; a grid through Ray and here; a population;
runs that fail; examples/sweep/ray_script.py; no ray; a cluster that goes away. Called by tests/interop/run, which provides the
packages. Every process that it starts it ends, and no other.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent.parent
DIGITS = SOURCE / "examples" / "sweep" / "digits.toml"
BINARY, FOLDER = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
RAY = Path(sys.executable).parent / "ray"
SHORT = ["run.steps=90", "evaluate.every=15", "run.threads=1"]
SPACE = '\n[sweep]\nmetric = "loss"\n{}\n[[sweep.space]]\nkey = "optimizer.learning_rate"\n{}\n'


def expect(is_so, what):
    if not is_so:
        sys.exit(f"[interop] {what}")


def environment(port=None, binary=BINARY):
    names = {"PYTHONPATH": str(SOURCE / "python"), "TANREN": str(binary), "RAY_USAGE_STATS_ENABLED": "0",
             "RAY_gcs_rpc_server_reconnect_timeout_s": "10"}
    return os.environ | names | ({"RAY_ADDRESS": f"127.0.0.1:{port}"} if port else {})


def words_of(sets):
    return [word for each in sets for word in ("--set", each)]


def tanren(*words, code=0):
    done = subprocess.run([BINARY, *words], capture_output=True, text=True, cwd=FOLDER, check=False)
    expect(done.returncode == code, f"tanren {words}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def start_on_ray(port, file, out, sets, binary=BINARY):
    log = open(f"{FOLDER / out}.log", "w+")
    words = [sys.executable, "-m", "tanren_ray", file, "--out", FOLDER / out, *words_of(sets)]
    process = subprocess.Popen(words, stdout=log, stderr=log, env=environment(port, binary), cwd=FOLDER)
    return process, log


def said(log):
    log.seek(0)
    return log.read()


def on_ray(port, file, out, sets):
    process, log = start_on_ray(port, file, out, sets)
    expect(process.wait(timeout=900) == 0, f"tanren_ray on {file}: {said(log)[-4000:]}")


def leaderboard(out):
    board = json.loads((FOLDER / out / "leaderboard.json").read_text())
    expect(board["done"], f"{out} is not done")
    ids = sorted(trial["trial"] for trial in board["trials"])
    expect(ids == list(range(len(ids))), f"{out} has the trials {ids}")
    return board["trials"]


def final_loss(out):
    return json.loads((FOLDER / out / "summary.json").read_text())["evaluate.loss"]


def run_alone(file, out, trial, sets):
    own = [f"{key}={value}" for key, value in trial["values"].items()]
    tanren("run", file, "--quiet", "--out", out, *words_of(sets + own))
    return final_loss(out)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def runs_of(nodes):
    """Of each `tanren run` on these nodes: its process, the worker that started it and the worker's node."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (place / "cmdline").read_bytes().split(b"\0")
            if words[0] != bytes(BINARY) or words[1] != b"run":
                continue
            worker = parent_of(place.name)
            node = at = parent_of(worker)
            while at > 1 and at not in nodes:
                at = parent_of(at)
            if at in nodes:
                found.append((int(place.name), worker, node))
    return found


@contextlib.contextmanager
def cluster(name, nodes=1):
    """Nodes of one CPU, each with a folder of its own, as processes of ours."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    try:
        for node in range(nodes):
            place = ["--address", f"127.0.0.1:{port}"] if node else ["--head", "--port", str(port), "--include-dashboard=false"]
            # Names of sockets may have 107 bytes.
            folder = subprocess.check_output(["mktemp", "-d", f"/tmp/tanren-ray-{name}-XXXX"], text=True).strip()
            words = [RAY, "start", "--block", "--num-cpus=1", "--object-store-memory=150000000", "--temp-dir", folder, *place]
            log = open(f"{FOLDER}/{name}-{node}.log", "w+")
            process = subprocess.Popen(words, stdout=log, stderr=log, env=environment(), start_new_session=True)
            started.append((process, folder))
            until = time.monotonic() + 120
            while "Ray runtime started" not in said(log):
                expect(process.poll() is None and time.monotonic() < until, f"a node of Ray: {said(log)}")
                time.sleep(0.2)
        yield port, [process.pid for process, _ in started]
    finally:
        for process, _ in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process, folder in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            subprocess.run(["rm", "-rf", folder], check=False)


def check_asha(port, nodes):
    """A worker is killed once its run has a checkpoint at Ray: its run ends with it, and Ray begins again there."""
    sets = [*SHORT, "run.steps=360", "sweep.trials=8", "sweep.first_rung=15"]
    process, log = start_on_ray(port, DIGITS, "asha", sets)
    seen, killed = set(), None
    while process.poll() is None:
        for run, worker, node in runs_of(nodes):
            seen.add(node)
            saved = list((FOLDER / "asha" / "ray").glob("*/checkpoint_*/COMPLETE"))
            if killed is None and saved:
                killed = run
                os.kill(worker, signal.SIGKILL)
                until = time.monotonic() + 10
                while Path(f"/proc/{run}").exists() and time.monotonic() < until:
                    time.sleep(0.05)
                expect(not Path(f"/proc/{run}").exists(), "a run outlived the worker that was its trial")
        time.sleep(0.05)
    expect(process.returncode == 0, f"tanren_ray: {said(log)[-4000:]}")
    expect(killed is not None, "no worker was killed")
    expect(len(seen) == len(nodes), f"of {len(nodes)} nodes {len(seen)} trained")
    trials = leaderboard("asha")
    states = {trial["state"] for trial in trials}
    expect(len(trials) == 8 and states == {"finished", "stopped"}, f"asha: {len(trials)} trials, {states}")
    for trial in trials:
        if trial["state"] != "finished":
            continue
        expect(trial["value"] == run_alone(DIGITS, f"alone-{trial['trial']}", trial, sets[:4]),
               f"trial {trial['trial']} of Ray has another loss than tanren run")
    expect(json.loads(tanren("eval", "asha/best", "--json"))["evaluate.loss"] == trials[0]["value"],
           "asha/best has another loss than the leaderboard")
    tanren("sweep", "asha", "--set", "sweep.scheduler=asha", code=2)
    return len([trial for trial in trials if trial["state"] == "finished"])


def check_grid(port):
    """The same values through Ray and here."""
    text = DIGITS.read_text().split("[sweep]")[0].replace('"../', f'"{SOURCE}/examples/')
    file = FOLDER / "grid.toml"
    file.write_text(text + SPACE.format('sampler = "grid"\nkeep = 9', "low = 1e-3\nhigh = 0.1\npoints = 3\nscale = \"log\"") +
                    '[[sweep.space]]\nkey = "model.hidden"\nvalues = ["[8]", "[16, 16]"]\n')
    on_ray(port, file, "grid", SHORT)
    tanren("sweep", file, "--quiet", "--out", "here", *words_of(SHORT))
    values = [{json.dumps({key: value if key == "model.hidden" else float(value) for key, value in trial["values"].items()}):
               trial["value"] for trial in leaderboard(out)} for out in ("grid", "here")]
    expect(len(values[0]) == 6 and values[0] == values[1], f"a grid through Ray and here: {values}")
    file.write_text(text + SPACE.format('trials = 4\nsampler = "random"\nscheduler = "pbt"\ninterval = 15', "low = 1e-3\nhigh = 0.1"))


def check_population(port):
    """A fork of Ray is the fork that tanren run makes of the same checkpoint, also where the first runs have weights of
    a file. Values are in their ranges."""
    tanren("run", FOLDER / "grid.toml", "--quiet", "--out", "weights", *words_of([*SHORT, "run.seed=9"]))
    init = f"model.init_from={FOLDER}/weights/model.safetensors"
    on_ray(port, FOLDER / "grid.toml", "pbt", [*SHORT, init])
    trials = {trial["trial"]: trial for trial in leaderboard("pbt")}
    forks = [trial for trial in trials.values() if "fork_of" in trial]
    expect(forks and len(trials) == 4 + len(forks), f"pbt has {len(trials)} trials, {len(forks)} forks")
    rates = [float(trial["values"]["optimizer.learning_rate"]) for trial in trials.values()]
    expect(all(1e-3 <= rate <= 0.1 for rate in rates), f"pbt has the rates {rates}")
    fork = min(forks, key=lambda trial: trial["trial"])
    step, source = fork["fork_step"], trials[fork["fork_of"]]
    run_alone(FOLDER / "grid.toml", "source", source, [*SHORT, init, "checkpoint.every=15", "checkpoint.keep=9"])
    end = [f"run.stop_after={fork['step'] - step}"] if fork["step"] < 90 else []
    alone = run_alone(FOLDER / "grid.toml", "fork", fork, [*SHORT, *end, f"run.fork_from={FOLDER}/source/checkpoints/step-{step}"])
    expect(fork["value"] == alone, f"trial {fork['trial']}, a fork: {fork['value']} on Ray and {alone} here")


def check_failures(port):
    """Of three runs the first hangs, and the second has no loss: both are results."""
    odd = FOLDER / "odd"
    odd.write_text(f"""#!/bin/sh
case "$*" in
"run "*learning_rate=0.001*) exec sleep 600 ;;
"run "*learning_rate=0.01*)
  for out; do :; done
  echo '{{"evaluation":{{"accuracy":0.5}},"step":15}}' > "$out/log.jsonl"
  exit 0 ;;
esac
exec {BINARY} "$@"
""")
    odd.chmod(0o755)
    text = (FOLDER / "grid.toml").read_text().split("[sweep]")[0]
    file = FOLDER / "failures.toml"
    file.write_text(text + SPACE.format('sampler = "grid"\ntimeout = 5', "low = 1e-3\nhigh = 0.1\npoints = 3\nscale = \"log\""))
    process, log = start_on_ray(port, file, "failures", SHORT, odd)
    expect(process.wait(timeout=300) == 0, f"tanren_ray with failures: {said(log)[-4000:]}")
    ends = {trial["state"]: trial.get("reason") for trial in leaderboard("failures")}
    expect(ends == {"finished": None, "hung": "no log line and no processor time for 5 s",
                    "failed": "no evaluation in its log has loss"}, f"failures: {ends}")


def check_script(port):
    words = [sys.executable, SOURCE / "examples" / "sweep" / "ray_script.py", "--trials", "3", "--steps", "90", "--out", FOLDER / "script"]
    done = subprocess.run(words, env=environment(port), cwd=FOLDER, capture_output=True, text=True, check=False)
    expect(done.returncode == 0 and "its checkpoint: " in done.stdout, f"ray_script.py: {done.stdout}{done.stderr}")
    checkpoint = done.stdout.split("its checkpoint: ")[1].split("\n")[0]
    expect(Path(checkpoint, "COMPLETE").exists(), f"{checkpoint} is no checkpoint")


def check_refusals(port):
    words = ["python/tanren_ray.py", DIGITS, "--out", FOLDER / "none"]
    bare = subprocess.run([sys.executable, "-S", *words], cwd=SOURCE, env=environment(), capture_output=True, text=True, check=False)
    expect(bare.returncode == 2 and "pip install 'ray[tune]" in bare.stderr, f"without ray: {bare}")
    for sets, what in ((["optimizer.learning_rat=1"], "optimizer.learning_rate"), (["sweep.first_rung=7"], "evaluate.every"),
                       (['sweep.devices=["cpu"]'], "drop sweep.devices")):
        process, log = start_on_ray(port, DIGITS, "none", sets)
        expect(process.wait() == 2 and what in said(log), f"{sets}: {process.returncode} {said(log)}")
    expect(not (FOLDER / "none").exists(), "a refused sweep left a folder")
    process, log = start_on_ray(port, DIGITS, "asha", [*SHORT, "run.steps=360", "sweep.trials=8", "sweep.first_rung=15"])
    expect(process.wait() == 2 and "has begun" in said(log), f"a second start: {process.returncode} {said(log)}")


def check_lost_cluster():
    with cluster("lost") as (port, nodes):
        process, log = start_on_ray(port, DIGITS, "lost", ["run.steps=100000", "evaluate.every=15", "run.threads=1"])
        until = time.monotonic() + 120
        while '"report"' not in ((FOLDER / "lost" / "journal.jsonl").read_text() if (FOLDER / "lost").exists() else ""):
            expect(process.poll() is None and time.monotonic() < until, f"no trial began: {said(log)}")
            time.sleep(0.1)
        runs = [run for run, _, _ in runs_of(nodes)]
        expect(runs, "no run")
    expect(process.wait(timeout=180) == 1 and "Ray did not finish it" in said(log), f"a lost cluster: {said(log)[-2000:]}")
    expect(not any(Path(f"/proc/{run}").exists() for run in runs), "a run outlived its cluster")
    tanren("sweep", "lost")
    trials = json.loads((FOLDER / "lost" / "leaderboard.json").read_text())["trials"]
    expect(trials[0]["state"] == "running" and trials[0]["metrics"], f"of a lost cluster: {trials}")


with cluster("two", 2) as (head, all_nodes):
    finished = check_asha(head, all_nodes)
    check_refusals(head)
    check_grid(head)
    check_population(head)
    check_failures(head)
    check_script(head)
check_lost_cluster()
print(f"[interop] Ray: 8 trials by ASHA ({finished} finished), a grid, a population, a script; losses equal bit by bit")
