"""Sentence vectors of many rows with Spark, by ``DataFrame.mapInPandas``.

    pip install -e ".[spark]"    # needs a Java runtime
    python examples/spark.py disan-mini-en rows.parquet vectors --master "local[2]"

Every task of Spark loads the model once, then encodes the rows of its partition; the rows keep their columns and get
``vector``. With ``spark-submit --master yarn examples/spark.py ...`` the same file runs on a cluster, whose machines
need the package and the model.
"""

import argparse
import os
import sys
from collections.abc import Iterator

import pandas
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType, StructField, StructType


class Encode:
    """What a task does with the tables of its partition."""

    def __init__(self, model: str, column: str, threads: int):
        self.model, self.column, self.threads = model, column, threads

    def __call__(self, tables: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        import torch

        from hf_blosan.hub.saved import load
        from hf_blosan.inference.batches import Batches, SentenceVectors

        torch.set_num_threads(self.threads)  # the other cores have tasks of their own
        model, tokenizer = load(self.model, "feature-extraction")
        batches = Batches(model, tokenizer, SentenceVectors(model.config), batch_size=64)
        for table in tables:
            vectors = batches([(text,) for text in table[self.column]])
            yield table.assign(vector=vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a saved model, or the name of an encoder that comes with the package")
    parser.add_argument("input", help="Parquet file or folder")
    parser.add_argument("output", help="folder for Parquet files")
    parser.add_argument("--column", default="text", help="column with the texts")
    parser.add_argument("--master", help="where Spark runs; by default as spark-submit says")
    parser.add_argument("--partitions", type=int, help="tasks; by default those of the input files")
    parser.add_argument("--cpus", type=int, default=1, help="threads of a task, as in spark.task.cpus")
    options = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # by default tasks take the first python3 of the PATH
    builder = SparkSession.builder.appName("sentence vectors")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 4096)  # rows that are sorted by length
    spark = (builder.master(options.master) if options.master else builder).getOrCreate()
    rows = spark.read.parquet(options.input)
    if options.partitions:
        rows = rows.repartition(options.partitions)
    schema = StructType([*rows.schema, StructField("vector", ArrayType(FloatType()))])
    encode = Encode(options.model, options.column, options.cpus)
    rows.mapInPandas(encode, schema).write.parquet(options.output)
    spark.stop()


if __name__ == "__main__":
    main()
