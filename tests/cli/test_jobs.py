"""`penstock jobs …` and `penstock run` as a person sees them."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess

import pytest

ME = getpass.getuser()


def submitted(penstock, text: str, *more: str) -> dict:
    done = penstock("jobs", "submit", "-", "-o", "json", *more, stdin=text)
    assert done.code == 0, done.err
    return json.loads(done.out)


def ended(penstock, text: str, *more: str) -> dict:
    job = submitted(penstock, text, *more)
    return json.loads(penstock("jobs", "wait", job["id"], "-o", "json").out)


def test_a_followed_job_prints_its_log_and_says_how_it_ended(penstock):
    (penstock.folder / "task.yaml").write_text("name: followed\nrun: echo hello\n")
    done = penstock("jobs", "submit", "task.yaml", name="k8s-cli")
    assert (done.code, done.out) == (0, "hello\n")
    first, second, last = done.err.splitlines()
    task_id = first.removeprefix("Task submitted successfully with ID: ")
    assert second == "Name: followed"
    assert last.startswith(f"Task {task_id} (followed) completed in ")


def test_the_exit_code_of_a_followed_job_is_its_own(penstock):
    done = penstock("run", "--name", "failing", "--", "bash", "-c", "echo out; exit 7")
    assert (done.code, done.out) == (7, "out\n")
    last = done.err.splitlines()[-1]
    assert "(failing) failed after " in last
    assert "exit code 7, PROGRAM_FAILED." in last


def test_a_detached_job_gives_its_id_at_once(penstock):
    done = penstock("jobs", "submit", "-", "--detach", stdin="name: detached\nrun: sleep 100\n")
    assert done.code == 0
    first, second = done.out.splitlines()
    task_id = first.removeprefix("Task submitted successfully with ID: ")
    assert second == "Name: detached"
    stopped = penstock("jobs", "stop", task_id)
    assert stopped.code == 0
    assert stopped.out in (
        f"Task {task_id} (detached) is being stopped\n",
        f"Task {task_id} (detached) is stopped\n",
    )
    waited = penstock("jobs", "wait", task_id)
    assert waited.code == 1
    assert "(detached) stopped" in waited.err


def test_jobs_are_listed_as_k8s_cli_shows(penstock):
    job = ended(penstock, "name: listed\nrun: 'true'\n")
    created = job["created_at"][:19]
    wide, wider = max(len("User"), len(ME)), max(len("Namespace"), len(ME))
    assert penstock("jobs", "list", "--name", "listed").out == (
        f"Task ID   Name    Status     Created\n{job['id']}  listed  completed  {created}\n\nTotal tasks: 1\n"
    )
    assert penstock("jobs", "list", "--name", "listed", "--details", "-u").out == (
        "Task ID   Name    Status     Created              "
        f"{'User':{wide}}  Job Name         {'Namespace':{wider}}  Reason\n"
        f"{job['id']}  listed  completed  {created}  {ME:{wide}}  listed-{job['id']}  {ME:{wider}}  FINISHED\n"
        "\nTotal tasks: 1\n"
    )
    assert penstock("jobs", "list", "--name", "none-such").out == "No tasks found\n"


def test_a_job_that_waits_says_why_in_the_list_and_while_it_is_followed(penstock):
    node = json.loads(penstock("nodes", "-o", "json").out)[0]
    all_cpus = f"resources:\n  cpus: {node['cpus']}\n"
    first = submitted(penstock, f"name: first\n{all_cpus}run: sleep 100\n")
    waiting = penstock.started("run", "--name", "second", "--cpus", node["cpus"], "--", "echo", "hi")
    lines = iter(waiting.stderr)
    said = next(line for line in lines if line.startswith("Waiting: "))
    row = penstock("jobs", "list", "--name", "second").out.splitlines()[1]
    assert row.endswith(said.removeprefix("Waiting: ").strip())
    assert penstock("jobs", "stop", first["id"]).code == 0
    assert waiting.stdout.read() == "hi\n"
    assert next(lines).endswith("s.\n")
    assert waiting.wait() == 0
    waiting.stdout.close()
    waiting.stderr.close()


def test_status_shows_what_was_asked_and_what_happened(penstock):
    assert penstock("volumes", "create", "status-data", "1Gi", "-a", "ReadWriteMany").code == 0
    text = (
        "name: told\nnum_nodes: 2\nresources: {cpus: 500m, memory: 64Mi}\nenvs: {A: b}\n"
        "volumes: {/data: status-data}\nmax_duration: 1h\nidle_timeout: 10m\npriority: 5\nports: [8888]\n"
        f"selectors: {{node: {os.uname().nodename}}}\nsetup: 'true'\nrun: |\n  echo one\n  exit $NODE_RANK\n"
    )
    job = ended(penstock, text)
    shown = penstock("jobs", "status", "told").out
    for line in (
        f"Task ID:       {job['id']}",
        "Status:        failed",
        "State:         CRASHED",
        "Reason:        PROGRAM_FAILED",
        "Exit Code:     1",
        f"Job Name:      told-{job['id']}",
        "Nodes:         2",
        "CPUs:          0.5",
        "Memory:        64Mi",
        "Max Duration:  1h",
        "Idle Timeout:  10m",
        "Priority:      5",
        "Ports:         8888/tcp",
        f"Only On:       node {os.uname().nodename}",
        "  A=b",
        "  echo one",
        "  exit $NODE_RANK",
    ):
        assert line in shown.splitlines(), shown
    assert "\nHistory:\n  Time                 State" in shown
    assert "\nOn each node:\n  Node  State" in shown
    assert f"  /data: status-data ({job['volumes'][0]['id']})" in shown.splitlines()


def test_logs_can_be_cut_and_chosen_by_node(penstock):
    job = ended(penstock, "name: chatty\nnum_nodes: 2\nrun: for i in 1 2 3; do echo $NODE_RANK-$i; done\n")
    assert sorted(penstock("jobs", "logs", "chatty").out.splitlines()) == [
        f"node-{node} | {node}-{line}" for node in (0, 1) for line in (1, 2, 3)
    ]
    assert penstock("jobs", "logs", job["id"], "--node", "1", "--tail", "1", "--no-follow").out.endswith("1-3\n")
    assert penstock("jobs", "logs", job["id"], "--since", "2000-01-01", "--node", "0").out.count("\n") == 3


def test_bytes_that_are_no_text_survive(penstock):
    done = penstock("run", "--", "printf", r"\xff\x00\n")
    assert done.out.encode(errors="surrogateescape") == b"\xff\x00\n"


@pytest.mark.parametrize("line", [["jobs", "logs"], ["run"]], ids=["logs", "run"])
def test_ctrl_c_ends_the_following_and_says_that_the_job_goes_on(penstock, line):
    if line == ["run"]:
        following = penstock.started("run", "--name", "long", "--", "bash", "-c", "echo ready; sleep 100")
    else:
        job = submitted(penstock, "name: long\nrun: echo ready; sleep 100\n")
        following = penstock.started("jobs", "logs", job["id"])
    assert following.stdout.readline() == "ready\n"
    following.send_signal(signal.SIGINT)
    out, err = following.communicate()
    assert following.returncode == 0
    assert out == ""
    last = err.splitlines()[-1]
    ref = last.split()[-1]
    assert last == f"The job goes on. Follow it with: penstock jobs logs {ref}; stop it with: penstock jobs stop {ref}"
    assert json.loads(penstock("jobs", "status", ref, "-o", "json").out)["status"] == "running"
    assert penstock("jobs", "stop", ref).code == 0
    assert penstock("jobs", "wait", ref).code == 1


def test_waiting_has_an_end_too(penstock):
    job = submitted(penstock, "name: endless\nrun: sleep 100\n")
    waited = penstock("jobs", "wait", "endless", "--timeout", "1s")
    assert waited.code == 1
    assert waited.err.startswith(f"Task {job['id']} (endless) is still ")
    assert penstock("jobs", "wait", "endless", "--timeout", "soon").code == 2
    penstock("jobs", "stop", "endless")


def test_of_several_jobs_the_first_failure_is_the_exit_code(penstock):
    good = submitted(penstock, "run: exit 0\n")
    bad = submitted(penstock, "run: exit 5\n")
    worse = submitted(penstock, "run: exit 6\n")
    assert penstock("jobs", "wait", good["id"], bad["id"], worse["id"]).code == 5


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["stop"], "Name a job, or use --all."),
        (["stop", "--all-users"], "--all-users needs --all."),
        (["stop", "a", "--all"], "Name jobs or use --all, not both."),
        (["submit", "missing.yaml"], "Invalid value for FILE: missing.yaml: No such file or directory."),
        (["submit", "-", "--env", "A"], "Invalid value for --env: 'A' is not KEY=VALUE."),
        (["logs", "x", "--since", "yesterday"], "'yesterday' is not a duration (10m, 2h) or a time"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_named_and_exits_with_2(penstock, line, says):
    done = penstock("jobs", *line)
    assert done.code == 2
    assert says in done.err


def test_all_jobs_are_stopped_at_once(penstock):
    penstock("jobs", "stop", "--all")
    for _ in range(2):
        submitted(penstock, "run: sleep 100\n")
    assert penstock("jobs", "stop", "--all").out == "Stopped 2 tasks\n"
    assert penstock("jobs", "stop", "--all", "--all-users").out == "Stopped 0 tasks for all users\n"


def test_other_peoples_jobs_are_stopped_only_after_a_question(penstock, server):
    penstock("jobs", "stop", "--all")
    _, made = server.request("POST", "/v1/tokens", {"user": "zoe"})
    bearer = {"Authorization": f"Bearer {made['token']}"}
    _, theirs = server.tcp("POST", "/v1/workloads", {"text": "name: theirs\nrun: sleep 100\n"}, bearer)
    submitted(penstock, "run: sleep 100\n")
    everyone = ("jobs", "stop", "--all", "--all-users")
    refused = penstock(*everyone)
    assert (refused.code, refused.out) == (2, "")
    assert "Stop 2 jobs of " in refused.err
    assert "zoe (1)" in refused.err
    assert "use --yes." in refused.err
    assert penstock(*everyone, stdin="n\n").out == "Cancelled\n"
    assert server.tcp("GET", f"/v1/workloads/{theirs['id']}", headers=bearer)[1]["status"] != "stopped"
    assert penstock(*everyone, "--yes").out == "Stopped 2 tasks for all users\n"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("penstock", ("jobs", "stop")),
        ("penstock", ("stop", "wk")),
        ("pwmcli", ("stop", "wk")),
        ("k8s-cli", ("jobs", "stop")),
    ],
)
def test_somebody_elses_job_is_stopped_by_its_name_only_after_a_question(penstock, server, program, words):
    _, made = server.request("POST", "/v1/tokens", {"user": "zoe"})
    bearer = {"Authorization": f"Bearer {made['token']}"}
    _, theirs = server.tcp("POST", "/v1/workloads", {"text": "run: sleep 100\n"}, bearer)
    refused = penstock(*words, theirs["id"], name=program)
    assert (refused.code, refused.out) == (2, "")
    question = f"Stop job {theirs['name']} ({theirs['id']}) of zoe?"
    assert f"{question} There is no terminal to ask on: use --yes." in refused.err
    assert penstock(*words, theirs["id"], stdin="n\n", name=program).out == "Cancelled\n"
    assert server.tcp("GET", f"/v1/workloads/{theirs['id']}", headers=bearer)[1]["status"] in ("pending", "running")
    assert penstock(*words, theirs["id"], "--yes", name=program).code == 0
    assert server.ended(theirs["id"])["status"] == "stopped"
    asked = penstock("jobs", "delete", theirs["id"], stdin="n\n")
    assert f"Delete task {theirs['name']} ({theirs['id']}, stopped) of zoe and its log?" in asked.err
    mine = submitted(penstock, "run: sleep 100\n")
    assert penstock(*words, mine["id"], name=program).code == 0


def test_somebody_elses_volume_is_deleted_only_after_a_question(alone):
    assert alone("volumes", "list").code == 0
    token = alone("token", "create", "--user", "zoe").out.strip()
    zoe = {
        "PENSTOCK_TOKEN": token,
        "PENSTOCK_API_URL": json.loads(alone("server", "status", "-o", "json").out)["address"],
    }
    assert alone("volumes", "create", "theirs", "1Mi", **zoe).code == 0
    pwm = alone("delete", "vol", "theirs", "-g", "zoe", name="pwmcli")
    assert (pwm.code, pwm.out) == (2, "")
    assert "Delete Volume theirs of zoe and all its data? There is no terminal to ask on: use --yes." in pwm.err
    assert alone("volumes", "create", "mine", "1Mi").code == 0
    assert alone("delete", "vol", "mine", name="pwmcli").code == 0


def test_somebody_elses_token_is_deleted_only_after_a_question(penstock, server):
    _, theirs = server.request("POST", "/v1/tokens", {"user": "zoe"})
    refused = penstock("token", "delete", theirs["id"])
    assert (refused.code, refused.out) == (2, "")
    assert f"Delete token {theirs['id']}, which is not yours? There is no terminal to ask on: use --yes." in refused.err
    assert server.tcp("GET", "/v1/whoami", headers={"Authorization": f"Bearer {theirs['token']}"})[0] == 200
    assert penstock("token", "delete", theirs["id"], "--yes").code == 0
    _, mine = server.request("POST", "/v1/tokens", {})
    assert penstock("token", "delete", mine["id"]).code == 0


def test_a_wrong_task_names_file_line_key_and_the_right_one(penstock):
    (penstock.folder / "task.yaml").write_text("name: wrong\nrunn: echo\n")
    done = penstock("jobs", "submit", "task.yaml")
    assert (done.code, done.out) == (125, "")
    assert done.err.startswith("Error: ")
    assert "\n  task.yaml:2" in done.err
    assert "did you mean 'run'" in done.err


def test_variables_and_names_of_the_command_line_win(penstock):
    text = "name: original\nenvs: {A: one, B: two}\nrun: echo $A $B\n"
    done = penstock("jobs", "submit", "-", "--env", "A=x=y z", "--name", "other", stdin=text)
    assert done.out == "x=y z two\n"
    assert "Name: other" in done.err


def test_a_dry_run_only_says_what_would_be(penstock):
    done = penstock("jobs", "submit", "-", "--dry-run", stdin="name: dry\nrun: echo\n")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "Valid: yes"
    assert done.out.splitlines()[1].startswith("Fits now: ")
    assert penstock("jobs", "list", "--name", "dry").out == "No tasks found\n"


def test_the_words_of_a_command_survive(penstock):
    done = penstock("run", "--", "printf", "%s|", "a b", "$HOME", "it's", 'say "x"', "*", "")
    assert done.out == 'a b|$HOME|it\'s|say "x"|*||'


def test_a_single_word_may_hold_shell_syntax(penstock):
    assert penstock("run", "--env", "A=b", "echo $A; echo c | tr c d").out == "b\nd\n"


def test_an_image_is_named_in_one_line(penstock):
    made = penstock("run", "--image", "busybox:1", "-d", "-o", "name", "--", "true").out.strip()
    assert json.loads(penstock("jobs", "status", made, "-o", "json").out)["spec"]["resources"]["image"] == "busybox:1"
    refused = penstock("run", "--image", "not an image", "--", "true")
    assert refused.code == 125
    assert "--image: " in refused.err


def test_a_task_file_is_no_command(penstock, tmp_path):
    (tmp_path / "task.yaml").write_text("run: echo hello\n")
    done = penstock("run", str(tmp_path / "task.yaml"))
    assert (done.code, done.out) == (2, "")
    assert f"penstock jobs submit {tmp_path / 'task.yaml'}" in " ".join(done.err.split())


def test_a_volume_can_be_mounted_read_only(penstock):
    assert penstock("volumes", "create", "sealed", "1Gi").code == 0
    assert penstock("run", "--volume", "sealed:/data", "--", "bash", "-c", "echo x > /data/f").code == 0
    done = penstock("run", "--volume", "sealed:/data:ro", "--", "bash", "-c", "cat /data/f; touch /data/g")
    assert done.code != 0
    assert done.out.splitlines()[0] == "x"
    assert penstock("run", "--volume", "sealed", "--", "true").code == 2


def test_code_beside_the_task_file_goes_along(penstock):
    code = penstock.folder / "project" / "code"
    code.mkdir(parents=True)
    (code / "hello.py").write_text("print('from a file')\n")
    (code / "secret.key").write_text("x")
    (code / ".gitignore").write_text("*.key\n")
    (code.parent / "task.yaml").write_text("workdir: ./code\nrun: ls; python3 hello.py\n")
    done = penstock("jobs", "submit", "project/task.yaml")
    assert (done.code, done.out) == (0, "hello.py\nfrom a file\n"), done.err
    done = penstock("run", "--workdir", "project/code", "--", "ls", "-A")
    assert done.out == ".gitignore\nhello.py\n"


def test_a_workdir_that_is_not_there_is_named(penstock):
    done = penstock("run", "--workdir", "nowhere", "--", "ls")
    assert done.code == 125
    assert done.err == "Error: The workdir nowhere is not a directory.\nHint: it is relative to the task file\n"


def test_a_finished_job_is_deleted_and_a_running_one_is_not(penstock):
    job = submitted(penstock, "name: going\nrun: sleep 100\n")
    refused = penstock("jobs", "delete", "going", "--force")
    assert refused.code == 6
    assert "jobs stop" in refused.err
    penstock("jobs", "stop", "going")
    penstock("jobs", "wait", "going")
    deleted = penstock("jobs", "delete", job["id"], "-f")
    assert (deleted.code, deleted.out) == (0, f"Task {job['id']} deleted successfully\n"), deleted.err
    assert penstock("jobs", "status", job["id"]).code == 3


def test_watching_shows_what_changes(penstock):
    watching = penstock.started("jobs", "list", "--name", "watched", "--watch", "-o", "json")
    job = submitted(penstock, "name: watched\nrun: 'true'\n")
    seen = []
    for line in watching.stdout:
        change = json.loads(line)
        assert change["id"] == job["id"]
        seen.append(change["status"])
        if change["status"] == "completed":
            break
    watching.send_signal(signal.SIGINT)
    assert watching.communicate()[1] == ""
    assert watching.returncode == 0
    assert seen[-1] == "completed"


def test_watching_on_a_terminal_draws_the_list_again(penstock):
    ours, theirs = os.openpty()
    line = penstock.line("volumes", "list", "--name", "redrawn", "--watch")
    environ = penstock.environ | {"NO_COLOR": "1", "TERM": "xterm"}
    watching = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    shown = b""
    while b"Volume ID" not in shown:
        shown += os.read(ours, 65536)
    volume = penstock("volumes", "create", "redrawn", "1Gi", "-o", "name").out.strip()
    while volume.encode() not in shown:
        shown += os.read(ours, 65536)
    watching.send_signal(signal.SIGINT)
    assert watching.wait() == 0
    os.close(ours)
    assert shown.count(b"\x1b[H\x1b[JVolume ID") >= 2


def test_more_lines_than_there_can_be_are_wrong_usage(penstock):
    refused = penstock("jobs", "logs", "any", "--tail", "99999999999999999999")
    assert refused.code == 2
    assert "Invalid value for '--tail': 99999999999999999999 is not in the range 0<=x<=1000000." in refused.err


def test_rows_watched_by_a_program_stand_below_the_header(penstock):
    watching = penstock.started("jobs", "list", "--name", "aligned", "--watch")
    header = watching.stdout.readline()
    job = submitted(penstock, "name: aligned\nrun: 'true'\n")
    for line in watching.stdout:
        assert line.startswith(f"{job['id']}  aligned ")
        status = line[header.index("Status") :].split()[0]
        assert line[header.index("Created") :].startswith(job["created_at"][:19])
        if status == "completed":
            break


def test_ctrl_c_ends_the_waiting_and_says_that_the_job_goes_on(penstock):
    over = submitted(penstock, "run: 'true'\n")
    job = submitted(penstock, "run: sleep 100\n")
    waiting = penstock.started("jobs", "wait", over["id"], job["id"])
    waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    assert waiting.stderr.read() == (
        f"The job goes on. Follow it with: penstock jobs logs {job['id']}; "
        f"stop it with: penstock jobs stop {job['id']}\n"
    )
    assert waiting.wait() == 130
    assert penstock("jobs", "stop", job["id"]).code == 0


def test_the_log_of_a_job_that_waits_says_why(penstock):
    node = json.loads(penstock("nodes", "-o", "json").out)[0]
    all_cpus = f"resources:\n  cpus: {node['cpus']}\n"
    first = submitted(penstock, f"{all_cpus}run: sleep 100\n")
    second = submitted(penstock, f"{all_cpus}run: echo hi\n")
    shown = penstock("jobs", "logs", second["id"], "--no-follow")
    assert (shown.code, shown.out) == (0, "")
    assert shown.err.startswith("Waiting: needs")
    following = penstock.started("jobs", "logs", second["id"])
    assert following.stderr.readline().startswith("Waiting: needs")
    assert penstock("jobs", "stop", first["id"]).code == 0
    assert following.stdout.read() == "hi\n"
    assert following.wait() == 0


def test_a_wrong_option_of_run_is_named_as_it_was_written(penstock):
    refused = penstock("run", "--memory", "8", "--name", "Bad Name", "--volume", "v:/etc", "--", "true")
    assert refused.code == 125
    first, *problems = refused.err.splitlines()
    assert first == "Error: The command line has 3 problems."
    assert sorted(problem.split(":")[0] for problem in problems) == ["  --memory", "  --name", "  --volume"]
    assert "  --memory: '8' has no unit (write 8Gi)" in problems


def test_a_dry_run_looks_at_the_workdir(penstock):
    (penstock.folder / "task.yaml").write_text("workdir: ./code\nrun: ls\n")
    missing = penstock("jobs", "submit", "task.yaml", "--dry-run")
    assert missing.code == 125
    assert missing.err == "Error: The workdir code is not a directory.\nHint: it is relative to the task file\n"
    (penstock.folder / "code").mkdir()
    (penstock.folder / "code" / "a.py").write_text("x" * 2048)
    assert penstock("jobs", "submit", "task.yaml", "--dry-run").out.splitlines()[2] == (
        "Workdir: ./code (1 file, 2Ki before packing)"
    )


def test_a_dry_run_of_a_file_refuses_what_apply_refuses(penstock):
    (penstock.folder / "task.yaml").write_text("name: coded\nworkdir: code\nrun: 'true'\n")
    for words in (("apply", "-f", "task.yaml"), ("apply", "-f", "task.yaml", "--dry-run")):
        refused = penstock(*words)
        assert (refused.code, refused.out) == (1, ""), words
        assert "code" in refused.err
    (penstock.folder / "code").mkdir()
    (penstock.folder / "code" / "main.py").write_text("1\n")
    fine = penstock("apply", "-f", "task.yaml", "--dry-run")
    assert fine.code == 0
    assert "Would send code (1 file, 2B before packing)" in fine.err
    assert penstock("jobs", "list", "--name", "coded").out == "No tasks found\n"


def test_a_dry_run_packs_what_would_be_sent(alone):
    (alone.folder / "task.yaml").write_text("name: coded\nworkdir: code\nrun: 'true'\n")
    (alone.folder / "code").mkdir()
    (alone.folder / "code" / "data.bin").write_bytes(os.urandom(4096))
    alone.environ["PENSTOCK_WORKDIR_LIMIT"] = "2Ki"
    for words in (("apply", "-f", "task.yaml"), ("jobs", "submit", "task.yaml")):
        for dry in ((), ("--dry-run",)):
            refused = alone(*words, *dry)
            assert refused.code == (1 if words[0] == "apply" else 125), refused
            said = "Error: The workdir code is over the limit of 2Ki, packed. Its largest: data.bin (4Ki)."
            assert said in refused.err.splitlines()
    assert alone("jobs", "list", "--name", "coded").out == "No tasks found\n"


def test_a_dry_run_as_a_name_is_the_name(penstock):
    done = penstock("jobs", "submit", "-", "--dry-run", "-o", "name", stdin="name: dry\nrun: echo\n")
    assert (done.code, done.out) == (0, "dry\n")


def test_a_task_that_is_no_text_is_an_error_with_its_place(penstock):
    (penstock.folder / "task.yaml").write_bytes(b"name: a\nrun: \xff\n")
    refused = penstock("jobs", "submit", "task.yaml")
    assert refused.code == 125
    assert refused.err == "Error: task.yaml is not UTF-8 text.\n  task.yaml:2: invalid start byte\n"


def test_a_task_file_that_is_too_large_is_named(penstock):
    (penstock.folder / "task.yaml").write_text("run: " + "a" * (5 << 20))
    refused = penstock("jobs", "submit", "task.yaml")
    assert refused.code == 125
    assert refused.err.startswith("Error: task.yaml is too large. ")


def test_jobs_are_stopped_and_deleted_one_by_one_whatever_becomes_of_the_others(penstock):
    jobs = [submitted(penstock, "name: several\nrun: sleep 100\n") for _ in range(2)]
    ids = [job["id"] for job in jobs]
    stopped = penstock("jobs", "stop", ids[0], "none-such", ids[1], "-o", "name")
    assert (stopped.code, stopped.out.split()) == (3, ids)
    assert "none-such" in stopped.err
    penstock("jobs", "wait", *ids)
    deleted = penstock("jobs", "delete", "--force", "none-such", *ids, "-o", "json")
    assert deleted.code == 3
    assert [job["id"] for job in json.loads(deleted.out)] == ids


def test_a_name_that_several_share_lists_them(penstock):
    ids = {submitted(penstock, "name: twin\nrun: sleep 100\n")["id"] for _ in range(2)}
    refused = penstock("jobs", "status", "twin")
    assert refused.code == 6
    assert all(job in refused.err for job in ids)
    penstock("jobs", "stop", *ids)


def test_the_active_virtual_environment_is_there_at_its_own_path(penstock):
    import sys

    import click

    done = penstock("run", "--", "python", "-c", "import click; print(click.__file__)", VIRTUAL_ENV=sys.prefix)
    assert done.out == f"{click.__file__}\n", done.err
