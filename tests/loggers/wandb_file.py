"""Reader of the `.wandb` file that an offline run leaves.

The file starts with 7 bytes (":W&B", two of magic, one of version). From there on it is a LevelDB log: blocks of
32 KiB, in them chunks [checksum 4][length 2][type 1][payload], little-endian; type 1 is a whole record, 2, 3 and 4 are
first, middle and last chunk of one. A block's last bytes are padding where no 7-byte header fits. Each record is a
protocol buffer `wandb_internal_pb2.Record`; that module is private to wandb.
"""

import json
import struct

import pytest

BLOCK = 32 * 1024


def records(path):
    """Payloads of all records."""
    data = path.read_bytes()
    assert data[:4] == b":W&B"
    position, parts, found = 7, b"", []
    while position + 7 <= len(data):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        payload = data[position + 7 : position + 7 + length]
        position += 7 + length
        parts = payload if kind in (1, 2) else parts + payload
        if kind in (1, 4):
            found.append(parts)
    return found


def read_run(folder):
    """What the only offline run below a run folder has recorded."""
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    import wandb

    wandb.teardown()  # offline, `finish` returns before its service has written the last records; this waits for it
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    run = {"config": {}, "history": [], "axes": {}, "summaries": {}, "tables": {}, "summary": {}, "exit_code": None}
    for payload in records(path):
        record = proto.Record()
        record.ParseFromString(payload)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            for name in ("run_id", "project", "run_group", "job_type", "display_name"):
                run[name] = getattr(record.run, name)
            run["tags"] = list(record.run.tags)
            run["config"] |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "config":
            run["config"] |= {item.key: json.loads(item.value_json) for item in record.config.update}
        elif kind == "history":
            # A value inside a value has the keys of both, e.g. samples and path.
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            run["history"].append(items)
        elif kind == "summary":
            run["summary"] |= {
                item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.summary.update
            }
        elif kind == "metric":
            name, summary = record.metric.name or record.metric.glob_name, record.metric.summary
            run["axes"][name] = record.metric.step_metric
            if record.metric.HasField("summary"):
                run["summaries"][name] = {word for word in ("last", "min", "max") if getattr(summary, word)}
        elif kind == "exit":
            run["exit_code"] = record.exit.exit_code
    run["files"] = path.parent / "files"
    for row in run["history"]:  # the newest table of each key
        paths = {key: value for key, value in row.items() if key.endswith("_table/path")}
        run["tables"] |= {
            key.removesuffix("/path"): json.loads((run["files"] / at).read_text()) for key, at in paths.items()
        }
    return run
