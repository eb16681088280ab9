"""What the tests of recommenders share: small tables of two tastes, and the files of a run."""

from __future__ import annotations

import numpy as np

RESULTS = {"model.safetensors", "config.json", "metrics.json", "report.html"}
TIMED = {"metrics.json", "report.html"}  # they tell how long it took


def plays(num_users=60, num_items=40, each=12, seed=0):
    """Users and items of two tastes, one for the even and one for the odd; some interactions more than once.

    Returns:
        Rows (user, item, plays, time), in the order of time.
    """
    chance = np.random.default_rng(seed)
    rows = []
    for user in range(num_users):
        own = np.arange(user % 2, num_items, 2)
        for item in chance.choice(own, each, replace=False).tolist():
            rows += [(user, item, int(chance.integers(1, 9)), 0)] * int(1 + (chance.random() < 0.1))
    order = chance.permutation(len(rows)).tolist()
    return [(*rows[at][:3], 1_300_000_000 + 100 * time) for time, at in enumerate(order)]


def write_csv(path, rows, header="user,item,plays,timestamp"):
    lines = [header] if header else []
    path.write_text("\n".join([*lines, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    return path


def write_friends(path, num_users=60, seed=0):
    chance = np.random.default_rng(seed)
    rows = [(user, (user + 2 * int(chance.integers(1, 9))) % num_users) for user in range(num_users)]
    return write_csv(path, rows, "user,friend")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in TIMED}


def names(folder):
    return {path.name for path in folder.iterdir()} if folder.exists() else set()
