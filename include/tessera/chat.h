/* Chat formats: how messages become the token ids that a model was trained to answer.
 *
 *     tsr_chat_format format;
 *     tsr_chat_format_of(tokenizer, &format);
 *     tsr_chat_encode(tokenizer,
 *                     tsr_chat_params(.format = format, .messages = messages, .count = 2,
 *                                     .begin_reply = true),
 *                     &ids, &count);
 *     … generate until a token ends the reply, then encode only what follows it …
 *     tsr_chat_encode(tokenizer,
 *                     tsr_chat_params(.format = format, .messages = &question, .count = 1,
 *                                     .after = TSR_CHAT_AFTER_END, .begin_reply = true),
 *                     …);
 *
 * Models bring their format as a template, a program in the language Jinja. Templates are not
 * executed: the format is recognised by the strings in them. What a template adds by itself, such
 * as a date or an introduction, is left out (only "harmony" keeps its introduction, without which
 * its models do not know their channels), and so are the descriptions of tools, which the caller
 * writes into messages.
 *
 * The text of a message is only text: a control token's spelling in it, such as "<|im_end|>", does
 * not become the control token, so a message cannot pretend to be another one.
 *
 * Needs no device. Threads: as for tokenizers. */
#ifndef TESSERA_CHAT_H
#define TESSERA_CHAT_H

#include "tessera/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_CHAT_MAX_MESSAGES 65536

/* Q is the text of the user, R the reply, S the text of the system; <s> and </s> are the
 * tokenizer's BOS and EOS, and ⏎ is a line break. */
typedef enum tsr_chat_format {
    TSR_CHAT_MODEL = 0, /* the format of the tokenizer's template */
    /* "chatml": <|im_start|>user⏎Q<|im_end|>⏎ (Qwen, SmolLM, Yi …) */
    TSR_CHAT_CHATML = 1,
    /* "llama2": <s>[INST] <<SYS>>⏎S⏎<</SYS>>⏎⏎Q [/INST] R </s> */
    TSR_CHAT_LLAMA2 = 2,
    /* "llama3": <s><|start_header_id|>user<|end_header_id|>⏎⏎Q<|eot_id|> */
    TSR_CHAT_LLAMA3 = 3,
    /* "mistral": <s>[INST] Q [/INST]R</s> (Mistral 7B Instruct 0.1 and 0.2) */
    TSR_CHAT_MISTRAL = 4,
    /* "mistral-v1": <s> [INST] Q [/INST] R</s> */
    TSR_CHAT_MISTRAL_V1 = 5,
    /* "mistral-v3": <s>[INST] Q[/INST] R</s> */
    TSR_CHAT_MISTRAL_V3 = 6,
    /* "mistral-tekken": <s>[INST]Q[/INST]R</s> (Mistral Nemo) */
    TSR_CHAT_MISTRAL_TEKKEN = 7,
    /* "mistral-v7": <s>[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] Q[/INST] R</s> */
    TSR_CHAT_MISTRAL_V7 = 8,
    /* "mistral-v7-tekken":
     * <s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]Q[/INST]R</s> (Mistral Small) */
    TSR_CHAT_MISTRAL_V7_TEKKEN = 9,
    /* "zephyr": <|user|>⏎Q</s>⏎ (Zephyr, TinyLlama) */
    TSR_CHAT_ZEPHYR = 10,
    /* "vicuna": S⏎⏎USER: Q⏎ASSISTANT: R</s>⏎ */
    TSR_CHAT_VICUNA = 11,
    /* "deepseek": <s>S<｜User｜>Q<｜Assistant｜>R</s> (DeepSeek V3, R1 and its distillates) */
    TSR_CHAT_DEEPSEEK = 12,
    /* "gemma": <s><start_of_turn>user⏎S⏎⏎Q<end_of_turn>⏎<start_of_turn>model⏎R<end_of_turn>⏎
     * (Gemma 1 to 3) */
    TSR_CHAT_GEMMA = 13,
    /* "gemma4": <s><|turn>user⏎Q<turn|>⏎<|turn>model⏎R<turn|>⏎, without reasoning */
    TSR_CHAT_GEMMA4 = 14,
    /* "phi3": <|user|>⏎Q<|end|>⏎<|assistant|>⏎R<|end|>⏎ (Phi 3 and 3.5) */
    TSR_CHAT_PHI3 = 15,
    /* "phi4": <|im_start|>user<|im_sep|>Q<|im_end|> */
    TSR_CHAT_PHI4 = 16,
    /* "phi4-mini": <|user|>Q<|end|><|assistant|>R<|end|> */
    TSR_CHAT_PHI4_MINI = 17,
    /* "granite": <|start_of_role|>user<|end_of_role|>Q</s>⏎ */
    TSR_CHAT_GRANITE = 18,
    /* "olmo2": <s><|user|>⏎Q⏎<|assistant|>⏎R</s>⏎ (OLMo 2 and 3) */
    TSR_CHAT_OLMO2 = 19,
    /* "glm4": [gMASK]<sop><|user|>⏎Q<|assistant|>⏎R; the user's header ends a reply */
    TSR_CHAT_GLM4 = 20,
    /* "glm4.5": as "glm4", but replies begin with reasoning, which may be empty:
     * <|assistant|>⏎<think></think>⏎R (GLM 4.5 to 4.7) */
    TSR_CHAT_GLM45 = 21,
    /* "minimax-m2": ]~!b[]~b]user⏎Q[e~[⏎]~b]ai⏎R[e~[⏎ */
    TSR_CHAT_MINIMAX_M2 = 22,
    /* "harmony": <|start|>user<|message|>Q<|end|><|start|>assistant<|channel|>final<|message|>R
     * <|end|>, after an introduction that names no date (gpt-oss) */
    TSR_CHAT_HARMONY = 23,
    /* "mistral-v11-tekken": the messages of mistral-v7-tekken; calls
     * [TOOL_CALLS]name[CALL_ID]id[ARGS]{…} (Mistral Small 3.2) */
    TSR_CHAT_MISTRAL_V11_TEKKEN = 24,
    /* "mistral-v13-tekken": the same without ids; calls [TOOL_CALLS]name[ARGS]{…} (Ministral 3,
     * Devstral 2, Magistral) */
    TSR_CHAT_MISTRAL_V13_TEKKEN = 25
} tsr_chat_format;
#define TSR_CHAT_FORMATS 26

/* Returns the name in quotes above, "model" for TSR_CHAT_MODEL, or "?" for any other value. The
 * string is in static storage. */
TSR_API const char *tsr_chat_format_name(tsr_chat_format format);
/* Gives the format called `name`; "model" is not accepted. Errors: TSR_ERR_INVALID, naming the
 * formats that exist. */
TSR_API TSR_NODISCARD tsr_status tsr_chat_format_parse(const char *name, tsr_chat_format *out);
/* Gives the format of the tokenizer's template, which comes from the GGUF file, or from
 * chat_template.jinja or tokenizer_config.json beside the tokenizer. Errors: TSR_ERR_NOT_FOUND if
 * there is no template; TSR_ERR_UNSUPPORTED, quoting the start of the template, if it has none of
 * the formats above. */
TSR_API TSR_NODISCARD tsr_status tsr_chat_format_of(const tsr_tokenizer *tokenizer,
                                                    tsr_chat_format *out);

typedef enum tsr_chat_role {
    TSR_CHAT_SYSTEM = 0, /* the first message only */
    TSR_CHAT_USER = 1,
    TSR_CHAT_ASSISTANT = 2,
    /* Calls of tools. The caller writes the texts as the model was trained to read them: the
     * library only adds what is around them. Formats: chatml, llama3, mistral-v3 and later ones of
     * Mistral, harmony. */
    TSR_CHAT_TOOLS = 3,  /* the tools that there are. Formats of Mistral: directly before the user's
                            last message, of mistral-v13-tekken before the first one. harmony: in
                            place of the system's message, whose text comes before the tools, if
                            there is one ("# Instructions…") */
    TSR_CHAT_CALLS = 4,  /* the assistant calls tools, in place of a reply. harmony,
                            mistral-v11-tekken and mistral-v13-tekken: one tool, with its arguments;
                            of the latter two, further calls of the same reply may follow */
    TSR_CHAT_RESULT = 5, /* what a tool has given: after calls, or after another result */
    /* chatml, mistral-v13-tekken, harmony: what the assistant has thought before a call; the first
     * two: also before a reply. Only for tokenizers with the format's tokens around it, such as
     * <think> */
    TSR_CHAT_REASONING = 6,
    /* harmony, mistral-v13-tekken: what the assistant has told the user before a call */
    TSR_CHAT_PREAMBLE = 7
} tsr_chat_role;

typedef struct tsr_chat_message {
    size_t struct_size;
    tsr_chat_role role;
    const void *text; /* [size_bytes]; may contain zeros and need not be UTF-8 */
    size_t size_bytes;
    /* harmony: the tool of a call or result. mistral-v11-tekken, mistral-v13-tekken: that of a
     * call. Other formats do not use it */
    const char *tool;
    /* mistral-v11-tekken: the id of a call, or of the call that a result belongs to. Other formats
     * do not use it */
    const char *call_id;
} tsr_chat_message;

typedef enum tsr_chat_after {
    TSR_CHAT_AFTER_NOTHING = 0, /* the ids begin a conversation */
    TSR_CHAT_AFTER_END = 1,     /* the ids follow a reply that ends with an end token */
    TSR_CHAT_AFTER_CUT = 2      /* after a reply without its end token, with which the ids begin */
} tsr_chat_after;

/* Whether the model shall think before its answer. Formats whose models always do, or never, ignore
 * this. */
typedef enum tsr_chat_reasoning {
    /* As the model's template has it, of which chatml and deepseek also begin the reasoning, if the
     * template does; harmony: medium */
    TSR_CHAT_REASONING_DEFAULT = 0,
    /* The header of a reply contains an empty reasoning, so that the answer follows. Formats:
     * chatml and deepseek, if the tokenizer has <think> and </think>, glm4.5, minimax-m2, harmony
     */
    TSR_CHAT_REASONING_NONE = 1,
    /* harmony tells the model how long to think; for other formats the default, but chatml and
     * deepseek begin the reasoning if the template can */
    TSR_CHAT_REASONING_LOW = 2,
    TSR_CHAT_REASONING_MEDIUM = 3,
    TSR_CHAT_REASONING_HIGH = 4
} tsr_chat_reasoning;

typedef struct tsr_chat_params {
    size_t struct_size;
    tsr_chat_format format;
    /* User and assistant take turns, and the user begins. With TSR_CHAT_AFTER_NOTHING, a message of
     * the system may come before the user's first one. Calls are the assistant's turn, and results
     * that of the user; further calls may follow results. */
    const tsr_chat_message *messages; /* [count], at least one */
    int count;
    tsr_chat_after after;
    /* If the last message is the user's or a result, the header of a reply follows. If false, the
     * ids end with the last message. */
    bool begin_reply;
    tsr_chat_reasoning reasoning;
} tsr_chat_params;
#define tsr_chat_params(...)                                                                       \
    (&(tsr_chat_params){.struct_size = sizeof(tsr_chat_params), __VA_ARGS__})

/* Encodes messages. Sets *ids to an array of *count ids, which the caller frees with
 * tsr_tokenizer_free_ids. Errors: those of tsr_chat_format_of for TSR_CHAT_MODEL; TSR_ERR_INVALID
 * for messages in a wrong order and for other wrong params, naming the values, and for a tokenizer
 * without the BOS or EOS that the format needs; those of tsr_tokenizer_encode. */
TSR_API TSR_NODISCARD tsr_status tsr_chat_encode(const tsr_tokenizer *tokenizer,
                                                 const tsr_chat_params *params, int32_t **ids,
                                                 uint64_t *count);

#ifdef __cplusplus
}
#endif

#endif
