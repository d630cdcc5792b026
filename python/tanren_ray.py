"""The trials of `tanren sweep` on a Ray cluster (docs/sweep.md).

    python3 -m tanren_ray FILE [--out FOLDER] [--set KEY=VALUE]...

writes the journal that `tanren sweep FOLDER` reports. `from tanren_ray import trainable` is for a Tuner of your own.
Each node needs ray, and at the same places tanren (in PATH or TANREN) and what FILE names.
"""
import argparse, contextlib, ctypes, fcntl, functools, json, math, operator, os, random, shutil, signal
import subprocess, sys, tempfile, time, tomllib
try:
    import optuna, ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining
    from ray.tune.search.optuna import OptunaSearch
except ImportError as error:
    pip = f"{sys.executable} -m pip install 'ray[tune]==2.60.0' optuna==5.0.0"
    sys.exit(print(f"[sweep] {error}; run: {pip}", file=sys.stderr) or 2)

def say(what, code):
    return print("[sweep] " + what, file=sys.stderr, flush=True) or code

def setting(file, values, key, default):
    with open(file, "rb") as text:
        table, name = key.split(".")
        return type(default)(values.get(key, tomllib.load(text).get(table, {}).get(name, default)))

def trainable(file, tanren=None, worst=None):
    """For tune.Tuner: runs of `file`, with what a trial's config has for its keys. Each evaluation is reported with
    its step and checkpoint. A run that fails raises, or with `worst` reports that, an outcome and a reason."""
    file, tanren = os.path.abspath(file), tanren or shutil.which(os.environ.get("TANREN", "tanren"))
    def command(values, verb, *more, of=file):
        sets = {"run.threads": setting(file, values, "run.threads", 0) or 1,
                "checkpoint.every": setting(file, values, "evaluate.every", 0)} | texts_of(values)
        if of != file:  # the checkpoint is all that a fork begins with
            sets = {key: value for key, value in sets.items() if ".init_" not in key}
        return [tanren, verb, of, *more, *(word for each in sets.items() for word in ("--set", "%s=%s" % each))]
    def resources(values):
        planned = subprocess.run(command(values, "plan", "--json"), capture_output=True, check=False)
        plan = json.loads(planned.stdout or "{}")  # else the run says why
        on_cpu = plan.get("device", {"value": "cpu"})["value"].startswith("cpu")
        more = {"memory": plan.get("memory", {}).get("peak_bytes", 1)} if on_cpu else {"GPU": 1}
        return tune.PlacementGroupFactory([{"CPU": setting(file, values, "run.threads", 0) or 1} | more])
    def tanren_run(values):
        timeout = setting(file, values, "sweep.timeout", 600)
        train(functools.partial(command, values, "run", "--quiet"), worst, timeout)
    return tune.with_resources(tanren_run, resources)

def texts_of(values):
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()
            if not key.startswith("tanren.")}

def train(command, worst, timeout):
    folder, prctl = tempfile.mkdtemp(prefix="run-", dir=os.getcwd()), ctypes.CDLL(None).prctl
    last, cause = {"step": 0, "folder": os.path.basename(folder)}, None
    def fail(outcome, reason):
        if worst is None:
            raise RuntimeError(f"{outcome}: {reason}")
        tune.report(last | worst | {"outcome": outcome, "reason": reason, "done": True})
    with contextlib.ExitStack() as at_end:
        saved = tune.get_checkpoint()  # of this trial, or of the one that it forks
        words = command("--fork", of=at_end.enter_context(saved.as_directory())) if saved else command()
        output = at_end.enter_context(open(folder + "/output.txt", "w+", errors="replace"))
        child = subprocess.Popen([*words, "--out", folder], stdout=output, stderr=output,
                                 preexec_fn=lambda: prctl(1, signal.SIGKILL))  # PR_SET_PDEATHSIG: with this thread
        at_end.callback(child.wait)
        at_end.callback(child.kill)
        for step, metrics, is_last in evaluations(child, folder + "/log.jsonl", timeout):
            child.send_signal(signal.SIGSTOP)  # goes on once Ray has decided
            saved = f"{folder}/checkpoints/step-{step}"
            last |= metrics | {"step": step, "is_whole": is_last and child.poll() == 0}
            if lacking := (worst or {}).keys() - metrics.keys():
                return fail("failed", f"no evaluation in its log has {lacking.pop()}")
            is_saved = os.path.exists(saved + "/COMPLETE")
            tune.report(last, checkpoint=tune.Checkpoint.from_directory(saved) if is_saved else None)
            child.send_signal(signal.SIGCONT)
        code, said = child.wait(), (output.seek(0), ["", *output.read().splitlines()])[1]
        if code == 0:
            return
        if child.hung:
            return fail("hung", f"no log line and no processor time for {timeout} s")
        if code in (130, -signal.SIGTERM, -signal.SIGINT):
            raise RuntimeError("a signal stopped the run")  # Ray begins again from the checkpoint
        with contextlib.suppress(FileNotFoundError), open(folder + "/summary.json") as file:
            cause = json.load(file).get("cause")
    outcome = "crashed" if code < 0 else {"non_finite": "diverged", "memory": "out_of_memory"}.get(cause, "failed")
    fail(outcome, signal.Signals(-code).name if code < 0 else said[-1])

def evaluations(child, path, timeout):
    """Step and metrics of each evaluation and whether it is the last, once the run has gone on or has ended. A run
    that has neither written to its log nor used the processor for `timeout` seconds, if not 0, is ended."""
    log, rest, held, used, since, child.hung = None, "", None, None, time.monotonic(), None
    while True:
        is_over, before = child.poll() is not None, used
        if not is_over:
            with open(f"/proc/{child.pid}/stat") as stat:
                used = stat.read().rsplit(")", 1)[1].split()[11:13]
        log = log or (open(path) if os.path.exists(path) else None)
        said = log.read() if log else ""
        *lines, rest = (rest + said).split("\n")
        for line in lines:
            if held:
                yield (*held, False)
            entry = json.loads(line.replace("null", "NaN"))
            found = entry.get("evaluation", {}).items()
            held = found and (entry["step"], {key: value for key, value in found if isinstance(value, (int, float))})
        if is_over:
            return (yield (*held, True)) if held else None
        now = time.monotonic()
        since = now if said or used != before else since
        if child.hung and now - child.hung > min(timeout, 10):
            child.kill()
        elif not child.hung and 0 < timeout <= now - since:
            child.hung = now
            child.terminate()
        time.sleep(0.02)

class Recorder(tune.Callback):
    """Writes the journal (docs/file-formats.md). Where a population changes the config of a Ray trial, that is a
    trial of its own there, a fork. "tanren.trial" of a config is its trial there, or that of the fork's source."""
    def __init__(self, folder):
        self.folder = folder
    def setup(self, **_):
        self.now, self.num_trials = {}, 0  # now: the journal's trial of each of Ray
        self.file, self.sum = open(self.folder + "/journal.jsonl", "r+b", buffering=0), 0xCBF29CE484222325
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.head = json.loads(self.summed(self.file.readline()[:-27] + b"}"))
    def summed(self, line):
        self.sum = functools.reduce(lambda all, byte: (all ^ byte) * 0x100000001B3 % 2**64, line, self.sum)
        return b'%s,"sum":"%016x"}\n' % (line[:-1], self.sum)
    def write(self, **event):
        line = self.summed(json.dumps(event, separators=(",", ":")).encode())
        try:
            if self.file.write(line) < len(line):
                raise OSError("the disk is full")
            os.fdatasync(self.file)
        except OSError as error:  # Ray might go on with trials that the journal lacks
            os._exit(say(f"cannot write {self.folder}/journal.jsonl: {error}", 1))
    def start(self, trial, **fork):
        own, config, self.num_trials = self.num_trials, texts_of(trial.config), self.num_trials + 1
        values = {one["key"]: config[one["key"]] for one in self.head["space"] if one["key"] in config}
        self.write(start=own, values=values, until=self.head["steps"], **fork)
        self.now[trial] = trial.config["tanren.trial"] = own
    def on_trial_start(self, trial, **_):
        if trial not in self.now:  # it has not been paused or lost
            self.start(trial)
    def on_trial_result(self, trials, trial, result, **_):
        own, value = self.now[trial], result[self.head["metric"]]
        if "outcome" not in result and math.isfinite(value):
            self.write(report=own, step=result["step"], value=value)
        for changed in (one for one in trials if one.config.pop("tanren.is_fork", False)):
            self.start(changed, fork_of=changed.config["tanren.trial"], replaces=self.now[changed])
        link = f"{self.folder}/trials/{own:04}"
        os.makedirs(os.path.dirname(link), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.remove(link)
        os.symlink(f"../ray/{trial.trial_id}/{result['folder']}", link)
    def on_trial_complete(self, trial, **_):
        last, own = trial.last_result, self.now.pop(trial)
        value, step = last.get(self.head["metric"], math.nan), last.get("step", 0)
        if last.get("is_whole"):  # also where early_stop ended it
            step = self.head["steps"]
        if math.isfinite(value):
            return self.write(end=own, step=step, value=value)
        how = {"outcome": last.get("outcome", "diverged"), "reason": last.get("reason", f"its value is {value}")}
        self.write(end=own, step=step, **how)
    def on_trial_error(self, trial, **_):
        self.on_trial_start(trial)  # if it was lost before
        self.write(end=self.now.pop(trial), step=0, outcome="failed", reason=str(trial.get_error()).split("\n")[-1])

def choices_of(one):
    count, to, back = one.get("points", 0), float, float
    if one.get("scale") == "log":
        to, back = math.log, math.exp
    low, high = (to(one.get(end, 1)) for end in ("low", "high"))
    numbers = [back(low + i / (count - 1) * (high - low)) for i in range(1, count - 1)]
    numbers = [one["low"], *numbers, one["high"]] if count else []
    return one.get("values") or list(dict.fromkeys(math.floor(n + 0.5) if one.get("whole") else n for n in numbers))

def suggest(space, trial):
    point = {}
    for one in space * len(space):  # a condition may name a later dimension
        key, (on, _, value) = one["key"], one.get("when", "").partition("=")
        if key in point or (on and point.get(on) != value):
            continue
        kind, ask = (int, trial.suggest_int) if one.get("whole") else (float, trial.suggest_float)
        choices = choices_of(one)
        point[key] = (trial.suggest_categorical(key, choices) if choices else
                      ask(key, kind(one["low"]), kind(one["high"]), log=one["scale"] == "log"))

def within(one, number):
    number = float(min(max(number, one["low"]), one["high"]))
    return math.floor(number + 0.5) if one.get("whole") else number  # Ray rounds what is an int

def draw(one):
    to, back = (math.log, math.exp) if one["scale"] == "log" else (float, float)
    more = 0.5 if one.get("whole") else 0  # both ends as likely as the others
    return within(one, back(random.uniform(to(one["low"] - more), to(one["high"] + more))))

def explore(space, config):
    ranges = {one["key"]: within(one, config[one["key"]]) for one in space if "low" in one}
    return config | ranges | {"tanren.is_fork": True}

def search(file, folder, sets, tanren):
    with open(folder + "/journal.jsonl") as journal:
        head = json.loads(journal.readline())
    metric, space, seed = head["metric"], head["space"], head["seed"] % 2**32
    get = functools.partial(setting, file, sets)
    every, kind, how = get("evaluate.every", 0), get("sweep.scheduler", "none"), {}
    interval = get("sweep.interval", 0) or every
    random.seed(seed)
    if kind == "asha":
        how["scheduler"] = ASHAScheduler(
            time_attr="step", max_t=head["steps"], reduction_factor=get("sweep.reduction", 4),
            grace_period=get("sweep.first_rung", 0) or every)
    if kind == "pbt":
        if any("when" in one for one in space):
            raise RuntimeError("a population on Ray cannot have dimensions with when; take them out")
        mutations = {one["key"]: one.get("values") or functools.partial(draw, one) for one in space}  # and first values
        how["scheduler"] = PopulationBasedTraining(
            time_attr="step", perturbation_interval=interval, synch=True, log_config=False,
            hyperparam_mutations=mutations, custom_explore_fn=functools.partial(explore, space))
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(head["trials"])  # all of a population begin
    else:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler,
                   "grid": optuna.samplers.BruteForceSampler}[head["sampler"]](seed=seed)
        how["search_alg"] = OptunaSearch(functools.partial(suggest, space), metric, head["mode"], sampler=sampler)
        how["max_concurrent_trials"] = get("sweep.concurrent", 0) or None
    ray.init(logging_level="WARNING")
    tune.Tuner(
        trainable(file, tanren, {metric: math.inf if head["mode"] == "min" else -math.inf}), param_space=sets,
        tune_config=tune.TuneConfig(
            metric=metric, mode=head["mode"], num_samples=head["trials"],
            trial_dirname_creator=operator.attrgetter("trial_id"), **how),
        run_config=tune.RunConfig(
            name="ray", storage_path=folder, stop={"step": head["steps"]}, callbacks=[Recorder(folder)], verbose=1,
            failure_config=tune.FailureConfig(max_failures=3),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=interval // max(every, 1) + 2),
            sync_config=tune.SyncConfig(sync_artifacts=True, sync_artifacts_on_checkpoint=False))).fit()

def main():
    parser = argparse.ArgumentParser(prog="tanren_ray", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("FILE")
    parser.add_argument("--out", help="folder of the sweep (default: sweeps/<run.name>)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    asked, tanren = parser.parse_args(), shutil.which(os.environ.get("TANREN", "tanren"))
    if tanren is None:
        return say("there is no tanren in PATH; add its folder, or set TANREN to it", 2)
    sets = [word for each in asked.set for word in ("--set", each)]
    if code := subprocess.run([tanren, "plan", asked.FILE, "--quiet", *sets], check=False).returncode:
        return code
    values = dict(each.split("=", 1) for each in asked.set)
    if setting(asked.FILE, values, "sweep.devices", "[]") != "[]":
        return say("Ray gives out devices, one to a trial; drop sweep.devices (--set sweep.devices=[])", 2)
    name = setting(asked.FILE, values, "run.name", "") or os.path.splitext(os.path.basename(asked.FILE))[0]
    folder = os.path.abspath(asked.out or "sweeps/" + name)
    begin = [tanren, "sweep", asked.FILE, "--quiet", "--out", folder, *sets, "--set", "sweep.scheduler=external"]
    if code := subprocess.run(begin, check=False).returncode:
        return code
    with open(folder + "/journal.jsonl") as journal:
        if len(journal.readlines()) > 1:
            return say(f"{folder} has begun, and a sweep on Ray does not go on; tanren sweep {folder} reports it, "
                       "another --out begins again", 2)
    child = os.fork()  # a driver whose cluster goes away aborts
    if child == 0:
        code = 1  # of an interrupt, too
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        try:
            code = search(os.path.abspath(asked.FILE), folder, values, tanren) or 0
        except Exception as error:
            code = say(str(error), 1)
        finally:
            os._exit(code)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ray saves and ends
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        return subprocess.run([tanren, "sweep", folder], check=False).returncode
    return say(f"Ray did not finish it ({code}); tanren sweep {folder} reports it, another --out begins again", 1)

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # nodes need not have this file
if __name__ == "__main__":
    sys.exit(main())
