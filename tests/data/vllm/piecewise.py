"""A small decoder, compiled piecewise by vLLM's own backend: the parts between the attention operators."""

import torch
import vllm.platforms as platforms
from torch import nn
from torch.library import Library
from vllm.platforms.cpu import CpuPlatform

platforms._current_platform = CpuPlatform()  # a build for no device finds none

from vllm.compilation.decorators import support_torch_compile
from vllm.config import CompilationConfig, CompilationMode, CUDAGraphMode, VllmConfig, set_current_vllm_config
from vllm.forward_context import set_forward_context
from vllm.utils.torch_utils import direct_register_custom_op

library = Library("tiny", "FRAGMENT")
compiled_part = Library(
    "_C", "FRAGMENT"
)  # vLLM's C++ operators, which its passes name: their schemas do not matter here
for name in [
    "fused_add_rms_norm",
    "fused_add_rms_norm_static_fp8_quant",
    "fused_qk_norm_rope",
    "rms_norm",
    "rms_norm_dynamic_per_token_quant",
    "rms_norm_static_fp8_quant",
    "rotary_embedding",
    "silu_and_mul",
    "silu_and_mul_nvfp4_quant",
    "silu_and_mul_quant",
]:
    compiled_part.define(f"{name}(Tensor(a!) x) -> ()")


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v)


def attention_fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    return


direct_register_custom_op(
    op_name="attention",
    op_func=attention,
    mutates_args=["out"],
    fake_impl=attention_fake,
    target_lib=library,
    dispatch_key="CPU",
)


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        out = torch.empty_like(q)
        torch.ops.tiny.attention(q, k, v, out)
        x = x + out
        return x + self.down(torch.relu(self.up(x)))


@support_torch_compile
class Decoder(nn.Module):
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "", **kwargs) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(32) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def main() -> None:
    config = VllmConfig(
        compilation_config=CompilationConfig(
            mode=CompilationMode.VLLM_COMPILE,
            splitting_ops=["tiny::attention"],
            cudagraph_mode=CUDAGraphMode.NONE,
            compile_sizes=[8],
        )
    )
    for name, value in vars(config.compilation_config.pass_config).items():
        if value is True and name != "eliminate_noops":
            setattr(config.compilation_config.pass_config, name, False)
    config.compilation_config.splitting_ops = ["tiny::attention"]  # the CPU platform sets its own
    config.compilation_config.mode = CompilationMode.VLLM_COMPILE
    config.compilation_config.backend = "inductor"
    with set_current_vllm_config(config), torch.inference_mode():
        torch.manual_seed(0)
        model = Decoder(vllm_config=config, prefix="")
        for rows in (16, 8, 24):
            x = torch.randn(rows, 32)
            with set_forward_context(None, config):
                print(rows, model(x).sum().item())


if __name__ == "__main__":
    main()
