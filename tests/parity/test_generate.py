"""Greedy texts are those of transformers, token for token; the sampling rules are its logits processors."""
import itertools
import json
import subprocess

import pytest
import torch
import transformers

from support.lockstep import BUILD
from support.text_models import WORDS, byte_tokenizer, generate_file, make_folder

LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
FAMILIES = {
    "llama": ("Llama", {}),
    "llama 3 rope, tied": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "num_key_value_heads": 1}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "mistral, texts longer than its window": ("Mistral", {"sliding_window": 12}),
    "olmo2": ("Olmo2", {}),
}
MAX_TOKENS = 40
torch.set_num_threads(1)  # tiny models: more only wait for each other
PROMPTS = [" ".join(WORDS[(i * 7 + j * 3) % len(WORDS)] for j in range(length)) for i, length in enumerate((3, 17, 1, 30, 9))]


def greedy(model, tokenizer, prompts):
    """What transformers writes: texts filled up on the left, as it wants them."""
    tokenizer.padding_side = "left"
    batch = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    with torch.no_grad():
        out = model.generate(**batch, max_new_tokens=MAX_TOKENS, do_sample=False)
    return [row[batch["input_ids"].shape[1]:].tolist() for row in out]


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_is_transformers_token_for_token(tmp_path, name):
    family, changes = FAMILIES[name]
    model = make_folder(tmp_path / "model", family, **changes)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "model")
    lines = generate_file(tmp_path, [{"prompt": prompt} for prompt in PROMPTS], "--temperature", 0, "--max-tokens", MAX_TOKENS, "--batch-size", 3,
                          model=tmp_path / "model")
    lengths = set()
    for prompt, line in zip(PROMPTS, lines):
        [theirs] = greedy(model, tokenizer, [prompt])
        assert line["completion"].split() == [word for word in tokenizer.convert_ids_to_tokens(theirs) if word in WORDS]
        assert line["finish"] == ("end" if theirs[-1] == tokenizer.eos_token_id else "length")
        lengths.add(len(theirs))
    assert max(lengths) > 12
    # Left padding changes its last bits, not its words.
    for mine, theirs in zip(lines, greedy(model, tokenizer, PROMPTS)):
        assert mine["completion"].split() == [word for word in tokenizer.convert_ids_to_tokens(theirs) if word in WORDS]


def test_a_text_of_half_characters_reads_as_transformers_reads_it(tmp_path):
    model = make_folder(tmp_path / "model", tokenizer=byte_tokenizer())
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "model")
    prompts = ["möglich", "日本", "naïve 😀"]
    lines = generate_file(tmp_path, [{"prompt": prompt} for prompt in prompts], "--temperature", 0, "--max-tokens", MAX_TOKENS, model=tmp_path / "model")
    for prompt, line in zip(prompts, lines):
        start = tokenizer(prompt)["input_ids"]
        [theirs] = greedy(model, tokenizer, [prompt])
        whole = tokenizer.decode(start + theirs, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert prompt + line["completion"] == whole


def test_a_chat_is_rendered_with_the_generation_prompt(tmp_path):
    model = make_folder(tmp_path / "model")
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "model")
    messages = [{"role": "system", "content": "w9 w10"}, {"role": "user", "content": "w20 w21"}]
    [line] = generate_file(tmp_path, [{"messages": messages, "id": 4}], "--temperature", 0, "--max-tokens", 20, model=tmp_path / "model")
    assert line["id"] == 4 and line["messages"] == messages
    tokens = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        out = model.generate(**tokens, max_new_tokens=20, do_sample=False)[0, tokens["input_ids"].shape[1]:]
    assert line["completion"].split() == [word for word in tokenizer.convert_ids_to_tokens(out.tolist()) if word in WORDS]


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_an_adapter_beside_the_model_writes_as_peft(tmp_path, dora):
    import peft
    model = make_folder(tmp_path / "model")
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "model")
    [plain] = greedy(model, tokenizer, PROMPTS[:1])
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", use_dora=dora, init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    lines = generate_file(tmp_path, [{"prompt": prompt} for prompt in PROMPTS], "--adapter", tmp_path / "adapter", "--temperature", 0, "--max-tokens",
                          MAX_TOKENS, model=tmp_path / "model")
    theirs = [greedy(adapted, tokenizer, [prompt])[0] for prompt in PROMPTS]
    assert theirs[0] != plain, "this test needs an adapter that changes something"
    for mine, tokens in zip(lines, theirs):
        assert mine["completion"].split() == [word for word in tokenizer.convert_ids_to_tokens(tokens) if word in WORDS]


def processors(temperature, top_k, top_p, min_p, repetition_penalty):
    chosen = transformers.LogitsProcessorList()
    if repetition_penalty != 1:
        chosen.append(transformers.RepetitionPenaltyLogitsProcessor(repetition_penalty))
    if temperature != 1:
        chosen.append(transformers.TemperatureLogitsWarper(temperature))
    if top_k:
        chosen.append(transformers.TopKLogitsWarper(top_k))
    if top_p < 1:
        chosen.append(transformers.TopPLogitsWarper(top_p))
    if min_p > 0:
        chosen.append(transformers.MinPLogitsWarper(min_p))
    return chosen


def test_sampling_rules_are_the_processors_of_transformers():
    draw = torch.Generator().manual_seed(2)
    scores = torch.randn(3, 101, generator=draw) * 3
    scores[1] = scores[1].round()  # ties
    seen = torch.randint(0, 101, (3, 40), generator=draw)
    settings = [dict(zip(("temperature", "top_k", "top_p", "min_p", "repetition_penalty"), values))
                for values in itertools.product((1.0, 0.6, 1.7), (0, 1, 12, 500), (1.0, 0.9, 0.3), (0.0, 0.05, 0.5), (1.0, 1.3, 0.8))]
    jobs = "".join(json.dumps({"scores": scores.tolist(), "seen": seen.tolist(), **setting}) + "\n" for setting in settings)
    done = subprocess.run([BUILD / "bin" / "sampling_tool"], input=jobs, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for setting, line in zip(settings, done.stdout.splitlines(), strict=True):
        ours = torch.tensor([[float("-inf") if value is None else value for value in row] for row in json.loads(line)])
        theirs = processors(**setting)(seen, scores.clone())
        assert torch.equal(ours.isinf(), theirs.isinf()), setting
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6, msg=str(setting))
