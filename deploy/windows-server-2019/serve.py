"""Serves the predictions of a saved model over HTTP, with NumPy and without torch.

  python serve.py --model MODEL --edges edges.csv --features features.json [--host 0.0.0.0] [--port 8080]

The model is applied to the whole graph when the service starts and again on every reload; requests read the result.

  GET  /health                        {"status": "ok", "nodes": 22470, "classes": [...], "seconds": 0.2}
  POST /predict  {"nodes": [3, 5]}    {"predictions": [{"node": 3, "predicted": "company", "probability": 0.98}, ...]}
  POST /reload                        reads the files again; until they are read, the old predictions are given
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from sage_attention import Graph, SageAttentionError, load_model
from sage_attention.recipes.dataset import load_dataset
from sage_attention.recipes.features import read_features

MOST_BYTES = 10_000_000  # of a request


class Predictions:
    """What the model says of every node."""

    def __init__(self, model: str, edges: str, features: str) -> None:
        started = time.perf_counter()
        classifier = load_model(model)
        config = classifier.config
        width = config.num_features if features.lower().endswith(".json") else None
        data = load_dataset(edges, read_features(features, num_features=width), undirected=config.undirected)
        graph = Graph.from_edge_index(data.edge_index, data.num_nodes)
        probabilities = classifier.predict_proba(graph, data.features)
        best = probabilities.argmax(axis=1)
        self.classes = config.class_names
        self.best, self.probability = best, probabilities[np.arange(len(best)), best]
        self.place = {node: at for at, node in enumerate(data.node_ids.tolist())}
        self.seconds = time.perf_counter() - started

    def of(self, nodes: list[Any]) -> list[dict[str, Any]]:
        """The predictions of some nodes, in their order.

        Raises:
            KeyError: A node is not in the graph.
        """
        places = [self.place[node] for node in nodes]
        return [
            {"node": node, "predicted": self.classes[self.best[at]], "probability": float(self.probability[at])}
            for node, at in zip(nodes, places)
        ]


class Service(ThreadingHTTPServer):
    """Holds the predictions that all requests read."""

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there it would let two services share a port

    def __init__(self, address: tuple[str, int], files: tuple[str, str, str]) -> None:
        self.files = files
        self.reloading = threading.Lock()
        self.predictions = Predictions(*files)
        super().__init__(address, Handler)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Service
    timeout = 30  # seconds a silent client is waited for

    def do_GET(self) -> None:
        """Answers ``/health``."""
        if self.path != "/health":
            return self._answer(404, {"error": "GET /health, POST /predict or POST /reload"})
        held = self.server.predictions
        about = {"nodes": len(held.place), "classes": held.classes, "seconds": round(held.seconds, 3)}
        return self._answer(200, {"status": "ok", **about})

    def do_POST(self) -> None:
        """Answers ``/predict`` and ``/reload``."""
        body = self._body()
        if body is None:
            return None
        if self.path == "/predict":
            return self._predict(body)
        if self.path == "/reload":
            return self._reload()
        return self._answer(404, {"error": "GET /health, POST /predict or POST /reload"})

    def _body(self) -> bytes | None:
        try:
            size = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            size = -1
        if not 0 <= size <= MOST_BYTES:
            self.close_connection = True
            self._answer(413, {"error": f"expected a Content-Length of at most {MOST_BYTES} bytes"})
            return None
        return self.rfile.read(size)

    def _predict(self, body: bytes) -> None:
        try:
            nodes = json.loads(body)["nodes"]
            if not isinstance(nodes, list) or not all(type(node) in (int, str) for node in nodes):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            return self._answer(400, {"error": 'expected {"nodes": [ids]}'})
        try:
            return self._answer(200, {"predictions": self.server.predictions.of(nodes)})
        except KeyError as error:
            return self._answer(404, {"error": f"no node {error.args[0]!r} in the graph"})

    def _reload(self) -> None:
        with self.server.reloading:
            try:
                self.server.predictions = Predictions(*self.server.files)
            except (SageAttentionError, OSError) as error:
                return self._answer(500, {"error": str(error)})
        return self._answer(200, {"nodes": len(self.server.predictions.place)})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        text = json.dumps(content, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def main() -> int:
    """Runs the service until it is stopped."""
    parser = argparse.ArgumentParser(description="Serves the predictions of a saved model over HTTP.")
    parser.add_argument("--model", required=True, help="output folder of sage-attention train")
    parser.add_argument("--edges", required=True)
    parser.add_argument("--features", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0: any that is free")
    arguments = parser.parse_args()
    try:
        service = Service((arguments.host, arguments.port), (arguments.model, arguments.edges, arguments.features))
    except (SageAttentionError, OSError, OverflowError) as error:
        print(f"serve: {error}", file=sys.stderr)
        return 2

    def stop(*_: object) -> None:
        threading.Thread(target=service.shutdown).start()

    for name in ("SIGTERM", "SIGINT", "SIGBREAK"):  # docker stop; Ctrl-C; Ctrl-Break
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), stop)
    host, port = service.server_address[:2]
    print(f"serving {len(service.predictions.place):,} nodes on http://{host}:{port}", flush=True)
    service.serve_forever(poll_interval=0.2)
    service.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
