"""The kernels read no byte beside their tensors: each ends, then begins, at a page that must not be touched."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import ctypes, mmap, sys
import torch
from transformers import AutoConfig, AutoModel
import hf_blosan
from hf_blosan import functional as F
from hf_blosan.kernels import dropout

PAGE, NONE = mmap.PAGESIZE, 0
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
kept = []

def guarded(x, at_end):
    # A copy between two pages without access, directly before the second or after the first.
    size = x.numel() * x.element_size()
    pages = max(-(-size // PAGE), 1) * PAGE
    area = mmap.mmap(-1, pages + 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for guard in (address, address + PAGE + pages):
        assert libc.mprotect(guard, PAGE, NONE) == 0
    start = PAGE + (pages - size if at_end else 0)
    copy = torch.frombuffer(area, dtype=x.dtype, count=x.numel(), offset=start).view(x.shape)
    kept.append(area)
    return copy.copy_(x.detach())

def check_operators(at_end, dtype):
    for B, N, D in ((1, 1, 1), (2, 7, 3), (1, 17, 9), (3, 33, 17), (2, 5, 31)):
        k, q, x = (guarded(torch.randn(B, N, D, dtype=dtype), at_end).requires_grad_() for _ in range(3))
        mask = guarded(torch.rand(B, N) < 0.8, at_end)
        for options in ({"direction": "forward"}, {"direction": "diagonal", "window": 3},
                        {"direction": "backward", "block_length": 4}):
            for implementation in ("fused", "linear"):
                options["implementation"] = implementation
                F.directional_attention(k, q, x, key_mask=mask, **options).sum().backward()
        F.source2token_attention(k, x, mask=mask).sum().backward()
        k1, q1, x1 = (tensor[:1] for tensor in (k, q, x))
        starts = guarded(torch.tensor([0, N // 2, N // 2, N]), at_end)
        F.directional_attention(k1, q1, x1, direction="forward", cu_seqlens=starts).sum().backward()
        F.source2token_attention(k1, x1, mask=mask[:1], cu_seqlens=starts).sum().backward()
        heads = [tensor[:, None] for tensor in (k, q, x, k)]
        F.tensorized_attention(*heads, directions="forward", key_mask=mask).sum().backward()
        F.linear_recurrence(k.sigmoid(), x).sum().backward()
        for copies in (None, 3):
            for tensor in (x, x.transpose(0, 1)):
                y = dropout(tensor, 0.3, copies=copies)
                y.backward(guarded(torch.randn(y.shape, dtype=dtype), at_end))

FAMILIES = {"disan": {}, "biblosan": {"block_length": 3}, "mtsa": {}, "birnn": {"cell": "sru"}}

def check_models(at_end, dtype):
    for model_type, fields in FAMILIES.items():
        for size, (B, N) in ((4, (1, 1)), (28, (3, 11)), (36, (2, 19))):
            sizes = {"vocab_size": 9, "embedding_size": size // 2, "hidden_size": size}
            config = AutoConfig.for_model(model_type, **sizes, **fields)
            model = AutoModel.from_config(config).to(dtype)
            for parameter in model.parameters():
                parameter.data = guarded(parameter.data, at_end)
            embeds = guarded(torch.randn(B, N, size // 2, dtype=dtype), at_end).requires_grad_()
            mask = guarded(torch.arange(N).expand(B, N) < torch.tensor([N, N // 2 + 1, 1])[:B, None], at_end)
            model(inputs_embeds=embeds, attention_mask=mask).pooler_output.sum().backward()
            for layers_dtype in ("float32", "int8"):
                model.eval().set_layers_dtype(layers_dtype)
                with torch.no_grad():
                    model(inputs_embeds=embeds.detach(), attention_mask=mask)

torch.manual_seed(0)
for at_end in (True, False):
    for dtype in (torch.float32, torch.float64):
        check_operators(at_end, dtype)
        check_models(at_end, dtype)
print(len(kept), "tensors", flush=True)
ctypes.string_at(guarded(torch.ones(3), True).data_ptr(), 13)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mprotect of Linux")
def test_nothing_beside_a_tensor_is_read():
    """And a read that is one byte too long is noticed, at the end."""
    run = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout and int(run.stdout.split()[0]) > 500, run.stderr
    assert run.returncode == -signal.SIGSEGV, run.stderr
