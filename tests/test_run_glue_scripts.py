"""The calls that transformers' run_glue.py and run_glue_no_trainer.py make, where the package is not installed."""

import json
import os
import subprocess
import sys

import pytest
import torch
from small_data import question_rows, write_splits
from test_saving import code, make, saved_config
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_blosan.text.tokenization import build_tokenizer

BEGIN = """
import json, math, sys
for name in ("hf_blosan", "numba", "triton"):
    sys.modules[name] = None  # importing it raises ImportError
import numpy as np
import torch
from datasets import load_dataset
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding
from transformers import PretrainedConfig, Trainer, TrainingArguments, default_data_collator, get_scheduler, set_seed

path, output_dir, files = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
set_seed(1)
raw_datasets = load_dataset("json", data_files=files)
label_list = sorted(raw_datasets["train"].unique("label"))
num_labels = len(label_list)
"""
RUN_GLUE = """
options = {"cache_dir": None, "revision": "main", "token": None, "trust_remote_code": True}
config = AutoConfig.from_pretrained(path, num_labels=num_labels, finetuning_task=None, **options)
tokenizer = AutoTokenizer.from_pretrained(path, use_fast=True, **options)
model = AutoModelForSequenceClassification.from_pretrained(
    path, from_tf=False, config=config, ignore_mismatched_sizes=False, **options
)
assert "transformers_modules" in type(model).__module__
assert model.config.label2id == PretrainedConfig(num_labels=num_labels).label2id
label_to_id = {v: i for i, v in enumerate(label_list)}
model.config.label2id = label_to_id
model.config.id2label = {id: label for label, id in config.label2id.items()}
max_seq_length = min(128, tokenizer.model_max_length)


def preprocess_function(examples):
    result = tokenizer(examples["text"], padding="max_length", max_length=max_seq_length, truncation=True)
    result["label"] = [(label_to_id[l] if l != -1 else -1) for l in examples["label"]]
    return result


raw_datasets = raw_datasets.map(preprocess_function, batched=True, load_from_cache_file=False)


def compute_metrics(p):
    preds = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
    return {"accuracy": (np.argmax(preds, axis=1) == p.label_ids).astype(np.float32).mean().item()}


training_args = TrainingArguments(
    output_dir=output_dir, do_train=True, do_eval=True, use_cpu=True, num_train_epochs=12, learning_rate=0.02,
    per_device_train_batch_size=16, save_strategy="epoch", eval_strategy="epoch", report_to="none",
    load_best_model_at_end=True, metric_for_best_model="accuracy", save_total_limit=2, seed=1,
)
trainer = Trainer(
    model=model, args=training_args, train_dataset=raw_datasets["train"], eval_dataset=raw_datasets["validation"],
    compute_metrics=compute_metrics, processing_class=tokenizer, data_collator=default_data_collator,
)
metrics = trainer.train(resume_from_checkpoint=None).metrics
trainer.save_model()
trainer.log_metrics("train", metrics)
trainer.save_metrics("train", metrics)
trainer.save_state()
trainer.save_metrics("eval", trainer.evaluate(eval_dataset=raw_datasets["validation"]))
predictions = trainer.predict(raw_datasets["test"].remove_columns("label"), metric_key_prefix="predict").predictions
assert np.argmax(predictions, axis=1).shape == (len(raw_datasets["test"]),)
trainer.create_model_card(finetuned_from="me/encoder", tasks="text-classification")
"""
NO_TRAINER = """
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
config = AutoConfig.from_pretrained(path, num_labels=num_labels, finetuning_task=None, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(path, use_fast=True, trust_remote_code=True)
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token
config.pad_token_id = tokenizer.pad_token_id
model = AutoModelForSequenceClassification.from_pretrained(
    path, from_tf=False, config=config, ignore_mismatched_sizes=False, trust_remote_code=True
)
label_to_id = {v: i for i, v in enumerate(label_list)}
model.config.label2id = label_to_id
model.config.id2label = {id: label for label, id in config.label2id.items()}


def preprocess_function(examples):
    result = tokenizer(examples["text"], padding=False, max_length=128, truncation=True)
    result["labels"] = [label_to_id[l] for l in examples["label"]]
    return result


with accelerator.main_process_first():
    columns = raw_datasets["train"].column_names
    processed = raw_datasets.map(preprocess_function, batched=True, remove_columns=columns)
data_collator = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=None)
train_dataloader = DataLoader(processed["train"], shuffle=True, collate_fn=data_collator, batch_size=16)
eval_dataloader = DataLoader(processed["validation"], collate_fn=data_collator, batch_size=8)
no_decay = ["bias", "LayerNorm.weight"]
named = list(model.named_parameters())
groups = [
    {"params": [p for n, p in named if not any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    {"params": [p for n, p in named if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=0.02)
num_train_epochs = 12
max_train_steps = num_train_epochs * math.ceil(len(train_dataloader))
lr_scheduler = get_scheduler(
    name="linear", optimizer=optimizer, num_warmup_steps=0, num_training_steps=max_train_steps
)
model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
)
for epoch in range(num_train_epochs):
    model.train()
    for batch in train_dataloader:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
model.eval()
right = 0
for batch in eval_dataloader:
    with torch.no_grad():
        outputs = model(**batch)
    predictions, references = accelerator.gather((outputs.logits.argmax(dim=-1), batch["labels"]))
    right += (predictions == references).sum().item()
accelerator.save_state(output_dir + "/epoch_11")
accelerator.wait_for_everyone()
unwrapped_model = accelerator.unwrap_model(model)
unwrapped_model.save_pretrained(
    output_dir, is_main_process=accelerator.is_main_process, save_function=accelerator.save
)
if accelerator.is_main_process:
    tokenizer.save_pretrained(output_dir)
with open(output_dir + "/eval_results.json", "w") as file:
    json.dump({"eval_accuracy": right / len(processed["validation"])}, file)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("script", "model_type"), [(RUN_GLUE, "disan"), (NO_TRAINER, "biblosan")])
def test_fine_tuning(script, model_type, tmp_path):
    """A pretrained encoder gets a new head; everything that is saved carries its code."""
    rows = question_rows(96)
    tokenizer = build_tokenizer([row["text"] for row in rows])
    torch.manual_seed(1)
    encoder = make(model_type)
    encoder.resize_token_embeddings(len(tokenizer))
    encoder.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    files, output = write_splits(tmp_path / "data", question_rows, train=96), tmp_path / "out"
    files = json.dumps({name.removesuffix("_file"): path for name, path in files.items()})
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-c", BEGIN + script, str(tmp_path / "encoder"), str(output), files]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert json.loads((output / "eval_results.json").read_text())["eval_accuracy"] > 0.8
    for folder in (output, *output.glob("checkpoint-*")):
        assert code(folder) == code(tmp_path / "encoder")
        assert saved_config(folder)["auto_map"] == saved_config(tmp_path / "encoder")["auto_map"]
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        assert type(model).__module__ == f"hf_blosan.models.modeling_{model_type}"
        # The scripts set id2label from a configuration of which from_pretrained has made a copy, so only label2id.
        assert saved_config(folder)["label2id"] == {"animal": 0, "colour": 1, "number": 2}
    batch = AutoTokenizer.from_pretrained(output)("a very old horse", return_tensors="pt")
    assert model(**batch).logits.argmax().item() == 0
    if script is RUN_GLUE:
        assert len(list(output.glob("checkpoint-*"))) == 2 and (output / "README.md").exists()
