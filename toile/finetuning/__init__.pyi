"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.finetuning.adapters import (
    adapter_mask as adapter_mask,
    adapters_of as adapters_of,
    lora as lora,
    merge_adapters as merge_adapters,
    with_adapters as with_adapters,
    without_adapters as without_adapters,
)
from toile.finetuning.chats import encode_chat as encode_chat
from toile.finetuning.lora_arrays import LoRAArray as LoRAArray
from toile.finetuning.packed_rows import attention_mask as attention_mask, pack as pack
from toile.finetuning.peft import load_peft as load_peft, save_peft as save_peft
from toile.finetuning.preferences import dpo_loss as dpo_loss
from toile.finetuning.soft_prompts import SoftPrompt as SoftPrompt
from toile.finetuning.token_losses import log_probs as log_probs, token_loss as token_loss
