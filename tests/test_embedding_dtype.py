"""The word table in fewer bits than the layers, as an option of saving and loading."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

import hf_blosan
from hf_blosan import AutoModelForPairRegression, WordBagConfig

VOCABULARY, FIXED = 300, 120
IDS = torch.tensor([[2, 5, 179, 180, 299, 0], [1, 200, 3, 4, 0, 0]])
ERRORS = {"float16": 2**-11, "bfloat16": 2**-8, "int8": 1 / 127 / 2}
"""Largest rounding error, in units of the largest number of a row."""
every_dtype = pytest.mark.parametrize("dtype", ERRORS)


def make(head=AutoModel, model_type="disan", num_fixed=FIXED, **fields):
    torch.manual_seed(0)
    trainable = "train_words" if num_fixed else "all"
    fields = {"embedding_trainable": trainable, "num_fixed_embeddings": num_fixed} | fields
    sizes = {"vocab_size": VOCABULARY, "embedding_size": 16, "hidden_size": 24, "classifier_size": 6}
    model = head.from_config(AutoConfig.for_model(model_type, **sizes, **fields))
    model.load_word_vectors(torch.randn(VOCABULARY, 16) * torch.rand(VOCABULARY, 1))
    return model.eval()


def file_of(folder):
    return load_file(folder / "model.safetensors")


def assert_layers_equal(model, expected):
    table = ".word_embeddings."
    for name, tensor in expected.state_dict().items():
        assert table in f".{name}" or torch.equal(model.state_dict()[name], tensor), name


def assert_rounded(model, expected, dtype):
    exact, found = expected.get_input_embeddings().vectors(), model.get_input_embeddings().vectors()
    assert 0 < (found - exact).abs().max()
    assert ((found - exact).abs() <= 1.001 * ERRORS[dtype] * exact.abs().amax(dim=1, keepdim=True)).all()


@every_dtype
@pytest.mark.parametrize("num_fixed", [0, FIXED])
def test_saved_small_and_kept_small(dtype, num_fixed, tmp_path):
    model = make(num_fixed=num_fixed)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.save_pretrained(tmp_path / "float32")
    model.save_pretrained(tmp_path / "small", embedding_dtype=dtype)
    assert model.config.embedding_dtype == "float32" and model.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())

    bytes_of = {
        name: sum(x.nbytes for key, x in file_of(tmp_path / name).items() if "word_emb" in key)
        for name in ("float32", "small")
    }
    assert bytes_of["small"] == bytes_of["float32"] * (1 / 2 if "16" in dtype else 1 / 4 + 1 / 16)

    small, information = AutoModel.from_pretrained(tmp_path / "small", output_loading_info=True)
    assert not any(information.values()), information
    assert small.config.embedding_dtype == dtype and small.dtype == torch.float32
    assert small.get_input_embeddings().weight.dtype == getattr(torch, dtype)
    assert_layers_equal(small, model)
    assert_rounded(small, model, dtype)
    torch.testing.assert_close(small(IDS).pooler_output, model(IDS).pooler_output, rtol=0, atol=20 * ERRORS[dtype])
    assert small(IDS).pooler_output.dtype == torch.float32
    vectors = small.get_input_embeddings()(IDS)
    mask = (IDS != 0).long()
    assert torch.equal(small(inputs_embeds=vectors, attention_mask=mask).pooler_output, small(IDS).pooler_output)

    small.save_pretrained(tmp_path / "again")
    for name, tensor in file_of(tmp_path / "small").items():
        assert torch.equal(file_of(tmp_path / "again")[name], tensor)
    restored = AutoModel.from_pretrained(tmp_path / "small", embedding_dtype="float32")
    assert restored.config.embedding_dtype == "float32" and restored.state_dict().keys() == before.keys()
    assert torch.equal(restored.get_input_embeddings().vectors(), small.get_input_embeddings().vectors())
    restored.train()(IDS).pooler_output.sum().backward()
    assert restored.get_input_embeddings().weight.grad.abs().max() > 0


@every_dtype
@pytest.mark.parametrize("through_auto", [True, False])
def test_converted_while_loading(dtype, through_auto, tmp_path):
    model = make()
    model.save_pretrained(tmp_path)
    cls = AutoModel if through_auto else type(model)
    small, information = cls.from_pretrained(tmp_path, embedding_dtype=dtype, output_loading_info=True)
    assert not any(information.values()), information
    model.save_pretrained(tmp_path / "small", embedding_dtype=dtype)
    expected = AutoModel.from_pretrained(tmp_path / "small").state_dict()
    assert small.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in small.state_dict().items())


@every_dtype
@pytest.mark.parametrize("head", [AutoModelForSequenceClassification, AutoModelForPairRegression])
def test_models_with_a_head(dtype, head, tmp_path):
    model = make(head, "mtsa", num_sentences=2)
    types = (torch.arange(6) > 2).long().expand(2, -1)
    model.save_pretrained(tmp_path, embedding_dtype=dtype)
    small = head.from_pretrained(tmp_path)
    assert_rounded(small, model, dtype)
    for other in (small, AutoModel.from_pretrained(tmp_path)):
        assert other.get_input_embeddings().weight.dtype == getattr(torch, dtype)
    found, expected = (m(IDS, token_type_ids=types).logits for m in (small, model))
    torch.testing.assert_close(found, expected, rtol=0, atol=20 * ERRORS[dtype])


def test_layers_in_bfloat16(tmp_path):
    make().save_pretrained(tmp_path, embedding_dtype="int8")
    model = AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16 and model(IDS).pooler_output.dtype == torch.bfloat16


@pytest.mark.parametrize("model_type", ["disan", "mtsa", "multihead"])
def test_the_dtype_is_that_of_the_layers(model_type, tmp_path):
    """In int8 they have scales and biases alone, and replicas of torch.nn.DataParallel have no parameters."""
    model = make(model_type=model_type, num_fixed=0)
    expected = model(IDS).pooler_output
    model.save_pretrained(tmp_path, layers_dtype="int8", embedding_dtype="bfloat16")
    small = AutoModel.from_pretrained(tmp_path)
    assert small.dtype == torch.float32 and small(IDS).pooler_output.dtype == torch.float32
    model.set_embedding_dtype("float16")
    replica = replicate(model)
    assert not list(replica.parameters()) and replica.dtype == torch.float32
    torch.testing.assert_close(replica(IDS).pooler_output, expected, rtol=0, atol=20 * ERRORS["float16"])


def replicate(model):
    """As torch.nn.parallel.replicate, which refuses the CPU."""
    modules = list(model.modules())
    copies = {module: module._replicate_for_data_parallel() for module in modules}
    for module, copy in copies.items():
        copy._former_parameters = {}
        for name, child in module._modules.items():
            setattr(copy, name, copies[child]) if child is not None else copy._modules.__setitem__(name, None)
        for name, parameter in module._parameters.items():
            if parameter is None:
                copy._parameters[name] = None
            else:
                setattr(copy, name, parameter.view_as(parameter))
                copy._former_parameters[name] = getattr(copy, name)
        for name, buffer in module._buffers.items():
            copy._buffers[name] = buffer
    return copies[model]


def test_small_numbers_in_half_precision():
    """The scale of a row is rounded, after which a number could exceed what int8 holds."""
    model = make(num_fixed=0).half()
    vectors = torch.linspace(-1e-5, 1e-5, VOCABULARY * 16).view(VOCABULARY, 16)
    model.set_embedding_dtype("int8")
    model.load_word_vectors(vectors)
    found = model.get_input_embeddings().vectors()
    assert (found * vectors >= 0).all() and (found - vectors).abs().max() < 5e-6


def test_int8_is_for_inference(tmp_path):
    make().save_pretrained(tmp_path, embedding_dtype="int8")
    model = AutoModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="the word table is int8 and cannot be trained; load the model with embeddin"):
        model.train()(IDS)
    with torch.no_grad():
        model(IDS)
    with pytest.raises(ValueError, match='the word table is int8; load the model with embedding_dtype="float32"'):
        model.resize_token_embeddings(400)
    make(num_fixed=0, embedding_trainable="none").save_pretrained(tmp_path / "frozen", embedding_dtype="int8")
    model = AutoModel.from_pretrained(tmp_path / "frozen").train()
    model(IDS).pooler_output.sum().backward()  # the layers alone


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_beside_float32_is_for_inference(dtype, tmp_path):
    """Most updates are smaller than what such a table can hold, and Adam divides by 0 in float16."""
    make(num_fixed=0).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path, embedding_dtype=dtype).train()
    with pytest.raises(ValueError, match=f"the word table is {dtype} and cannot be trained; load the model with emb"):
        model(IDS)
    with torch.no_grad():  # for its dropout
        model(IDS)
    model.float()(IDS).pooler_output.sum().backward()
    AutoModel.from_pretrained(tmp_path, embedding_dtype=dtype, embedding_trainable="none").train()(IDS)
    AutoModel.from_pretrained(tmp_path).to(getattr(torch, dtype)).train()(IDS).pooler_output.sum().backward()


def test_a_frozen_table_stays_frozen():
    model = make(num_fixed=0)
    model.get_input_embeddings().requires_grad_(False)
    for dtype in ("float16", "int8", "float32"):
        model.set_embedding_dtype(dtype)
        assert not any(parameter.requires_grad for parameter in model.get_input_embeddings().parameters())
        model.train()(IDS).pooler_output.sum().backward()  # the layers alone
    thawed = make(num_fixed=0)
    thawed.set_embedding_dtype("int8")
    thawed.set_embedding_dtype("float32")
    assert thawed.get_input_embeddings().weight.requires_grad


def test_new_models_and_zero_rows(tmp_path):
    model = AutoModel.from_config(AutoConfig.for_model("disan", vocab_size=50, embedding_dtype="int8"))
    vectors = model.get_input_embeddings().vectors()
    assert 0.04 < vectors.abs().max() <= 0.05 and not model.get_input_embeddings().weight.requires_grad
    model.load_word_vectors(torch.zeros(50, 300))
    assert (model.get_input_embeddings().vectors() == 0).all()
    model.load_word_vectors(torch.full((50, 300), 1e-30))
    torch.testing.assert_close(model.get_input_embeddings().vectors(), torch.full((50, 300), 1e-30), rtol=1e-5, atol=0)


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForTokenClassification", "ForSentenceSelection"])
def test_word_bags_without_layers_below_their_head(head, tmp_path):
    config = WordBagConfig(vocab_size=VOCABULARY, embedding_size=8, pooling="mean")
    model = getattr(hf_blosan, f"WordBag{head}")(config).eval()
    model.save_pretrained(tmp_path)
    ids = {"input_ids": IDS}
    if head == "ForSentenceSelection":
        ids |= {"question_input_ids": IDS[:1], "passage_lengths": torch.tensor([2])}
    expected = model(**ids).logits
    found = type(model).from_pretrained(tmp_path, embedding_dtype="float16")(**ids).logits
    torch.testing.assert_close(found, expected, rtol=0.01, atol=0.01)


def test_wrong_dtypes(tmp_path):
    model = make()
    with pytest.raises(ValueError, match="embedding_dtype is 'int4'; choose one of float32, float16, bfloat16, int8"):
        model.save_pretrained(tmp_path, embedding_dtype="int4")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="leave out state_dict"):
        model.save_pretrained(tmp_path, embedding_dtype="int8", state_dict=model.state_dict())
    with pytest.raises(StrictDataclassError, match="embedding_dtype"):
        AutoConfig.for_model("disan", embedding_dtype="int4")


@pytest.mark.filterwarnings("ignore:.*quantize_dynamic", "ignore:torch.ao.quantization is deprecated")
def test_beside_quantised_layers(tmp_path):
    """Of torch.ao, whose layers have no parameters: the only floating-point numbers are the table's scales."""
    make(num_fixed=0).save_pretrained(tmp_path, embedding_dtype="int8")
    model = AutoModel.from_pretrained(tmp_path)
    small = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    found, expected = (m(IDS).pooler_output for m in (small, model))
    assert small.dtype == torch.float32 and 0 < (found - expected).abs().max() < 0.1 * expected.abs().max()
