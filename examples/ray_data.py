"""Sentence vectors of many rows with Ray Data, on one machine or a cluster.

    pip install -e ".[ray]"
    python examples/ray_data.py disan-mini-en rows.parquet vectors --actors 2

Every actor loads the model once, then encodes batches of rows; the rows keep their columns and get ``vector``. Ray
deals the work, repeats a batch whose machine is lost, and writes Parquet files. On a cluster give ``--address auto``,
and INPUT and OUTPUT on storage that all machines reach (s3://, gs://, a shared folder); leave a core for reading,
because actors that hold all of them wait for rows for ever.
"""

import argparse

import numpy as np
import ray


class Encoder:
    """An actor: a model, and how it encodes a batch of rows."""

    def __init__(self, model: str, column: str, threads: int):
        import torch

        from hf_blosan.hub.saved import load
        from hf_blosan.inference.batches import Batches, SentenceVectors

        torch.set_num_threads(threads)  # of the cores that Ray has given to the actor; the others have actors too
        loaded, tokenizer = load(model, "feature-extraction")
        self.batches = Batches(loaded, tokenizer, SentenceVectors(loaded.config), batch_size=64)
        self.column = column
        print(f"{model} is loaded", flush=True)

    def __call__(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        vectors = self.batches([(str(text),) for text in rows[self.column]])
        return rows | {"vector": np.stack(vectors).astype(np.float16)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a saved model, or the name of an encoder that comes with the package")
    parser.add_argument("input", help="Parquet file or folder")
    parser.add_argument("output", help="folder for Parquet files")
    parser.add_argument("--column", default="text", help="column with the texts")
    parser.add_argument("--actors", type=int, default=2, help="how many work at once")
    parser.add_argument("--cpus", type=int, default=1, help="cores for each actor")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs for each actor; 0.5 lets two actors share one")
    parser.add_argument("--rows", type=int, default=65536, help="rows of a block, the work of an actor, and of a file")
    parser.add_argument("--address", help="of a cluster, or auto; by default Ray runs on this machine alone")
    options = parser.parse_args()

    # Reading and writing are tasks of one core.
    cores = {"address": options.address} if options.address else {"num_cpus": options.actors * options.cpus + 1}
    ray.init(logging_level="warning", **cores)
    # One file may be one block, which is the work of one actor.
    rows = ray.data.read_parquet(options.input).repartition(target_num_rows_per_block=options.rows)
    encoded = rows.map_batches(
        Encoder,
        fn_constructor_kwargs={"model": options.model, "column": options.column, "threads": options.cpus},
        batch_size=4096,  # sorted by length in the actor, then encoded 64 at a time
        compute=ray.data.ActorPoolStrategy(size=options.actors),
        num_cpus=options.cpus,
        num_gpus=options.gpus,
    )
    encoded.write_parquet(options.output)


if __name__ == "__main__":
    main()
