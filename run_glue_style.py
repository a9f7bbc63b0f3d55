"""Train a sentence encoder on a task, evaluate it, and write model, card, log and figures to one folder.

Option names are those of transformers' run_glue_no_trainer.py; `--help` lists them all. The defaults are a modern
recipe for the task and the encoder; `--recipe paper` has the papers' settings.

A task from local files (DIR/trec/train.jsonl.gz, ...), with word vectors in GloVe text format:

    python run_glue_style.py --task_name trec --encoder disan --data_dir DIR --word_vectors FILE --output_dir out/trec

Without --data_dir the data comes from the Hugging Face Hub. Sentence pairs with a score, in several processes:

    accelerate launch run_glue_style.py --task_name sick_relatedness --encoder biblosan --output_dir out/sick

Your own files (columns sentence1, sentence2 or text, and label or score), with different settings:

    python run_glue_style.py --train_file a.csv --validation_file b.csv --encoder mtsa --output_dir out/own \
        --optimizer adam --config_overrides "dropout=0.3,hidden_size=400"

Interrupt and resume later, with exactly the result of an uninterrupted run:

    python run_glue_style.py ... --output_dir out/trec --checkpointing_steps epoch
    python run_glue_style.py ... --output_dir out/trec --resume_from_checkpoint out/trec/epoch_3

Continue training a saved model on other data:

    python run_glue_style.py --task_name snli --model_name_or_path out/sick_entailment --output_dir out/snli

The loop is in hf_blosan/training/loop.py, the steps around it in hf_blosan/training/run.py. From Python:

    from hf_blosan.training import RunArguments, train
    run = train(RunArguments(task_name="demo", encoder="disan", output_dir="out/demo"))
    run["figures"]["test_accuracy"]
"""

import sys


def main() -> int:
    try:
        from hf_blosan.cli.startup import prepare_imports, quick_imports

        prepare_imports()
        with quick_imports():
            from hf_blosan.training import main as run
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
