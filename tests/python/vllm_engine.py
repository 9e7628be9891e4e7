# SPDX-License-Identifier: MIT
"""An engine of vLLM, run by the interpreter that has it: vllm_engine.py FOLDER FORMAT [ROLE], or `make FOLDER SEED`.

Each line of standard input is a command, and each is answered by a line of JSON.
"""

import json
import os
import re
import sys

MODEL = {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2}


def make(folder, seed):
    """A Llama of random weights, with a tokenizer of its own."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(MODEL["vocab_size"] - 3)])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**MODEL, tie_word_embeddings=False, initializer_range=0.2))
    model.save_pretrained(folder)


def memory(worker):
    """How many bytes of the model lie in a pool and elsewhere, and how the pool is mapped."""
    found = {"pool": 0, "elsewhere": 0, "buffers": 0, "maps": set()}
    segments = []
    with open("/proc/self/smaps", encoding="utf-8") as f:
        for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", f.read()):
            if "share-segment" in block.partition("\n")[0]:
                begin, end = (int(x, 16) for x in block.split()[0].split("-"))
                segments.append((begin, end))
                found["maps"].add(block.split()[1])
    model = worker.model_runner.model
    for t in model.parameters():
        found["pool" if any(b <= t.data_ptr() < e for b, e in segments) else "elsewhere"] += t.nbytes
    found["buffers"] = sum(t.nbytes for t in model.buffers())
    with open("/proc/self/smaps_rollup", encoding="utf-8") as f:
        found["anonymous"] = int(re.search(r"^Anonymous:\s+(\d+)", f.read(), re.M)[1]) << 10
    found["maps"] = sorted(found["maps"])
    return found


def store(worker, how, folder):
    """What stores to weights in place; the sentence that refuses it."""
    from safetensors.torch import load_file

    model = worker.model_runner.model
    name, parameter = next(iter(model.named_parameters()))
    try:
        if how == "checkpoint":
            worker.reload_weights(weights_iterator=list(load_file(f"{folder}/model.safetensors").items()))
        elif how == "kernel":
            worker.reload_weights(weights_iterator=[(name, parameter.clone())], is_checkpoint_format=False)
        elif how == "path":
            worker.reload_weights(weights_path=f"{folder}/../elsewhere")
        elif how == "loader":
            parameter.weight_loader(parameter, parameter.clone())
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return "nothing refused that"


def serve(folder, form, role):
    from vllm import LLM, SamplingParams

    extra = {"name": "tiny", "role": role, "timeout": 120} if form == "libshare" else {}
    llm = LLM(folder, load_format=form, model_loader_extra_config=extra, enforce_eager=True, max_model_len=64, max_num_seqs=2,
              dtype="float32", disable_log_stats=True, seed=0)

    def answer(command, argument):
        if command == "tokens":
            llm.reset_prefix_cache()
            out = llm.generate(["w1 w2 w3", "w7 w8 w9"], SamplingParams(temperature=0, max_tokens=16), use_tqdm=False)
            return [list(o.outputs[0].token_ids) for o in out]
        if command == "memory":
            return llm.collective_rpc(memory)[0]
        if command == "store":
            return llm.collective_rpc(store, args=(argument, folder))[0]
        if command == "reload":
            return llm.collective_rpc("reload_weights")
        raise ValueError(command)

    print("ANSWER", json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print("ANSWER", json.dumps(answer(*json.loads(line))), flush=True)


if __name__ == "__main__":
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]))
    else:
        serve(sys.argv[1], sys.argv[2], (sys.argv[3:] or [None])[0])
