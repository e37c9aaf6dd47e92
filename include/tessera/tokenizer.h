/* Tokenizers: text to token ids and back, as a model's own files define it. They are read from a
 * GGUF file (the arrays tokenizer.ggml.*), from a tokenizer.json of Hugging Face, from a
 * tokenizer.model of SentencePiece (BPE only), from the tok….bin of llama2.c, or from a folder that
 * has one of the last three. A tokenizer needs no device and no network.
 *
 *     tsr_tokenizer *tokenizer = NULL;
 *     int32_t *ids = NULL;
 *     uint64_t count = 0;
 *     tsr_tokenizer_open("model.gguf", &tokenizer);
 *     tsr_tokenizer_encode(tokenizer, "Once upon a time", 16, NULL, &ids, &count);
 *     … prompt and generated ids …
 *     tsr_decode_state state = TSR_INIT(tsr_decode_state);
 *     for (uint64_t i = 0; i < count; i++) {
 *         tsr_tokenizer_decode_next(tokenizer, &state, ids[i], &bytes, &size);
 *         fwrite(bytes, 1, size, stdout);
 *     }
 *     tsr_tokenizer_free_ids(&ids);
 *
 * Text is bytes: it may contain zeros and need not be valid UTF-8. Decoding the ids of a text gives
 * the text back, byte for byte, with these exceptions, which come from the models' files:
 * - A tokenizer.json may have a normaliser, such as NFC: the normalised text comes back. It may
 *   also recognise an added token together with the spaces around it.
 * - SentencePiece-style vocabularies write a space as "▁" (U+2581), so this character comes back as
 *   a space. If the file adds a space in front of every text, decoding removes it again.
 * - A vocabulary may lack tokens for some bytes: mostly those that valid UTF-8 never has, but
 *   Falcon's also lacks 15 control characters. A tokenizer of kind TSR_TOKENIZER_BYTE_BPE encodes
 *   such a byte as U+FFFD if its vocabulary can, and otherwise as its unknown token; the other
 *   kinds encode such a character as the unknown token. It is an error if there is no unknown
 *   token.
 *
 * If a text is valid UTF-8 and all its bytes have tokens, the ids are those of llama.cpp for GGUF
 * files, and those of Hugging Face's tokenizers for tokenizer.json. Both depend on Unicode's
 * classes, here those of the installed utf8proc; letters of newer versions of Unicode may be cut
 * differently. As in llama.cpp, a tokenizer from a GGUF file of Qwen2 does not normalise text,
 * whereas one from its tokenizer.json does. Bytes that are not UTF-8 are encoded as themselves,
 * whereas both references replace them by U+FFFD in byte-level vocabularies. If two added tokens
 * overlap in the text, the one that starts first is found, and of those that start at the same
 * place the longest.
 *
 * Threads: a tokenizer does not change after opening, and any number of threads may use it. */
#ifndef TESSERA_TOKENIZER_H
#define TESSERA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_TOKENIZER_MAX_SIZE 16777216    /* tokens of a vocabulary */
#define TSR_TOKENIZER_MAX_TEXT 1073741824  /* bytes of a text to encode */
#define TSR_TOKENIZER_MAX_TOKEN_BYTES 4096 /* bytes of a token */

typedef struct tsr_tokenizer tsr_tokenizer;

typedef enum tsr_tokenizer_kind {
    /* SentencePiece-style BPE: merges the neighbours whose union has the highest score. Characters
     * that the vocabulary lacks become tokens of bytes, <0x00> to <0xFF>. */
    TSR_TOKENIZER_SPM = 0,
    /* BPE by a list of merges: starts with the characters of a text and merges neighbours, the
     * first merges of the list first. */
    TSR_TOKENIZER_BPE = 1,
    /* BPE by a list of merges, over bytes, inside the words into which a regular expression cuts
     * the text (GPT-2 and its descendants). */
    TSR_TOKENIZER_BYTE_BPE = 2
} tsr_tokenizer_kind;

/* Opens the tokenizer of `path`: a GGUF file, a tokenizer.json, a tokenizer.model, a tok….bin of
 * llama2.c, or a folder. In a folder, reads tokenizer.json, or tokenizer.model if there is none, or
 * the only file named tok*.bin if there is neither. The ids of BOS, EOS and padding come from the
 * same file or, for tokenizer.json, from the tokenizer_config.json beside it, if there is one.
 *
 * Errors: TSR_ERR_NOT_FOUND, also for a GGUF file without a tokenizer; TSR_ERR_IO,
 * TSR_ERR_NO_MEMORY; TSR_ERR_UNSUPPORTED for an unknown kind of model, pre-tokenizer, normaliser or
 * decoder, naming it; TSR_ERR_INVALID for a file that contradicts itself: ids that collide or are
 * missing, two tokens with the same text, merges of unknown tokens, lengths beyond the file. */
TSR_API TSR_NODISCARD tsr_status tsr_tokenizer_open(const char *path, tsr_tokenizer **out);

/* Closes the tokenizer and sets the pointer to NULL. NULL is allowed. */
TSR_API void tsr_tokenizer_close(tsr_tokenizer **tokenizer);

/* Returns the name of a kind: "spm", "bpe" or "byte-bpe", and "?" for any other value. */
TSR_API const char *tsr_tokenizer_kind_name(tsr_tokenizer_kind kind);

typedef struct tsr_tokenizer_info {
    size_t struct_size;
    tsr_tokenizer_kind kind;
    /* The name of the regular expression that cuts a text into words, such as "gpt-2", "llama-bpe"
     * or "qwen2", or "none". The string belongs to the tokenizer. */
    const char *words;
    /* The ids of the tokens that stand for the beginning of a text, its end, padding, and unknown
     * text; -1: the files name no such token. */
    int32_t bos, eos, pad, unknown;
} tsr_tokenizer_info;
/* Describes a tokenizer. Errors: TSR_ERR_INVALID for a NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_tokenizer_get_info(const tsr_tokenizer *tokenizer,
                                                        tsr_tokenizer_info *out);

/* Returns the number of tokens; ids are 0 to this number − 1. A model's vocabulary may be larger,
 * because it is padded. */
TSR_API int32_t tsr_tokenizer_size(const tsr_tokenizer *tokenizer);

/* Returns whether generation ends with this token: EOS, the tokens that the file names as the end
 * of a turn or message, and the known spellings of these (<|eot_id|>, <|eom_id|>, <|im_end|>,
 * <|end|>, <end_of_turn>, <turn|>, <|endoftext|>, <|end_of_text|>, <EOT>, <｜end▁of▁sentence｜>,
 * <|return|>, <|call|>) if they are control tokens. In a vocabulary with <|return|>, <|end|> does
 * not end generation, but one of the messages of a reply. */
TSR_API bool tsr_tokenizer_is_end(const tsr_tokenizer *tokenizer, int32_t id);

/* Returns the id of the token that the file spells `text`, or -1: the id of a token at which a
 * sequence shall stop (`stop` of tsr_sequence_params), such as "<|im_end|>". The spelling is that
 * of the file: "▁the" or "Ġthe". */
TSR_API int32_t tsr_tokenizer_find(const tsr_tokenizer *tokenizer, const char *text, size_t size);

typedef struct tsr_token_info {
    size_t struct_size;
    const char *text;  /* as the file spells the token; belongs to the tokenizer */
    size_t size_bytes; /* of `text`, which a zero byte follows */
    /* The token is not text but controls the model, as BOS, EOS, <|eot_id|> and the unknown token
     * do. */
    bool control;
} tsr_token_info;
/* Describes a token. Errors: TSR_ERR_INVALID if the id is out of range. */
TSR_API TSR_NODISCARD tsr_status tsr_tokenizer_get_token(const tsr_tokenizer *tokenizer, int32_t id,
                                                         tsr_token_info *out);

/* Encoding ------------------------------------------------------------------------------------- */

typedef enum tsr_encode_add {
    /* Adds the ids that the file wants around a text: usually BOS in front, or nothing. */
    TSR_ENCODE_ADD_DEFAULT = 0,
    TSR_ENCODE_ADD_NONE = 1
} tsr_encode_add;

typedef enum tsr_encode_control {
    /* A control token's spelling in the text, such as "<|eot_id|>", is ordinary text. This is the
     * choice for text from outside. Added tokens that are not control tokens are recognised. */
    TSR_ENCODE_CONTROL_TEXT = 0,
    /* A control token's spelling in the text becomes the control token. */
    TSR_ENCODE_CONTROL_TOKEN = 1
} tsr_encode_control;

typedef struct tsr_encode_params {
    size_t struct_size;
    tsr_encode_add add;
    tsr_encode_control control;
} tsr_encode_params;
#define tsr_encode_params(...)                                                                     \
    (&(tsr_encode_params){.struct_size = sizeof(tsr_encode_params), __VA_ARGS__})

/* Encodes size_bytes bytes. Sets *ids to an array of *count ids, which the caller frees with
 * tsr_tokenizer_free_ids; it is never NULL on success. `params` may be NULL. The time is
 * proportional to n log n, also for a text without spaces.
 *
 * Errors: TSR_ERR_INVALID if the text is longer than TSR_TOKENIZER_MAX_TEXT, if normalisers of a
 * tokenizer.json make it longer than 64 times its length plus 4096 bytes, or if it has a byte for
 * which the vocabulary has neither a token nor an unknown token; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_tokenizer_encode(const tsr_tokenizer *tokenizer,
                                                      const void *text, size_t size_bytes,
                                                      const tsr_encode_params *params,
                                                      int32_t **ids, uint64_t *count);

/* Frees the ids and sets the pointer to NULL. */
TSR_API void tsr_tokenizer_free_ids(int32_t **ids);

/* Decoding ------------------------------------------------------------------------------------- */

typedef enum tsr_decode_control {
    TSR_DECODE_CONTROL_SKIP = 0, /* control tokens are left out */
    TSR_DECODE_CONTROL_SPELL = 1 /* control tokens are written as they are spelled */
} tsr_decode_control;

/* The state of decoding one id after the other. TSR_INIT(tsr_decode_state) is the start of a
 * text; the caller may set `control` before the first call. The other members belong to the
 * library. A copy of a state is independent of it. */
typedef struct tsr_decode_state {
    size_t struct_size;
    tsr_decode_control control;
    int32_t place; /* whether text has begun, and what kind of token came before */
} tsr_decode_state;

/* Gives the bytes that the next token adds to the text; there may be none. They belong to the
 * tokenizer and are valid as long as it is. Bytes of several tokens may form one character of
 * UTF-8. To stream generated text, first pass the ids of the prompt and drop their bytes. Errors:
 * TSR_ERR_INVALID if the id is out of range; the state has then not changed. */
TSR_API TSR_NODISCARD tsr_status tsr_tokenizer_decode_next(const tsr_tokenizer *tokenizer,
                                                           tsr_decode_state *state, int32_t id,
                                                           const char **bytes, size_t *size_bytes);

/* Decodes ids[count] into the caller's `text`, of capacity_bytes. Sets *size_bytes to the number of
 * bytes written or, if `text` is NULL, to the number needed. No zero byte is added. Errors:
 * TSR_ERR_INVALID if an id is out of range, or if capacity_bytes is too small. */
TSR_API TSR_NODISCARD tsr_status tsr_tokenizer_decode(const tsr_tokenizer *tokenizer,
                                                      const int32_t *ids, uint64_t count,
                                                      tsr_decode_control control,
                                                      size_t capacity_bytes, char *text,
                                                      size_t *size_bytes);

/* Text streams ------------------------------------------------------------------------------- */

/* The text of a sequence while its tokens are generated. A stream gives out the text that later
 * tokens cannot change, and ends at stop strings of the caller. It holds back UTF-8 characters of
 * which bytes are missing, and bytes that may be the start of a stop string.
 *
 *     tsr_text_stream_create(tsr_text_stream_params(.tokenizer = tokenizer, .stops = stops,
 *                                                   .stop_count = 1), &stream);
 *     … tsr_text_stream_add_prompt(stream, id, &text, &size) for the ids of the prompt …
 *     while (!stopped && … the next id …) {
 *         tsr_text_stream_add(stream, id, &text, &size, &stopped);
 *         fwrite(text, 1, size, stdout);
 *     }
 *     tsr_text_stream_end(stream, &text, &size);
 *
 * Threads: one thread at a time per stream. */
typedef struct tsr_text_stream tsr_text_stream;

#define TSR_TEXT_STREAM_MAX_STOPS 1024
#define TSR_TEXT_STREAM_MAX_STOP_BYTES 65536

typedef enum tsr_text_invalid {
    TSR_TEXT_INVALID_KEEP = 0,   /* bytes that are not UTF-8 are given out as they are */
    TSR_TEXT_INVALID_REPLACE = 1 /* each byte that is not UTF-8 becomes U+FFFD */
} tsr_text_invalid;

typedef struct tsr_text_stream_params {
    size_t struct_size;
    const tsr_tokenizer *tokenizer; /* must outlive the stream */
    /* Strings that end the text; it does not contain the one that ended it. They are searched in
     * the bytes of generated tokens, also across tokens, but not in the prompt. If several match,
     * the one that starts first counts. Copied. */
    const char *const *stops;
    int stop_count;
    tsr_decode_control control;
    tsr_text_invalid invalid;
    /* Keeps the channels of a reply apart; see tsr_text_stream_channel. */
    bool channels;
} tsr_text_stream_params;
#define tsr_text_stream_params(...)                                                                \
    (&(tsr_text_stream_params){.struct_size = sizeof(tsr_text_stream_params), __VA_ARGS__})

/* Creates a stream at the start of a text. Errors: TSR_ERR_INVALID for a tokenizer that is NULL, a
 * stop string that is NULL, empty or longer than TSR_TEXT_STREAM_MAX_STOP_BYTES, more of them than
 * TSR_TEXT_STREAM_MAX_STOPS, or a value of an enum that does not exist; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_text_stream_create(const tsr_text_stream_params *params,
                                                        tsr_text_stream **out);
/* Destroys a stream and sets the pointer to NULL. NULL is allowed. */
TSR_API void tsr_text_stream_destroy(tsr_text_stream **stream);

/* Add a token of the prompt, or one that was generated, and give the text that has become certain;
 * there may be none. It belongs to the stream and is valid until the next call for it. A zero byte
 * follows it. *stopped becomes true if a stop string has ended the text; the text before that
 * string has then been given out completely. With .channels, a control token of the prompt that is
 * no mark of a channel ends what the text before it began, such as reasoning in a message of the
 * user.
 *
 * Errors: TSR_ERR_INVALID for an id out of range, a prompt's token after a generated one, or a
 * token after the end of the text; TSR_ERR_NO_MEMORY. After an error the stream has not changed. */
TSR_API TSR_NODISCARD tsr_status tsr_text_stream_add_prompt(tsr_text_stream *stream, int32_t id,
                                                            const char **text, size_t *size_bytes);
TSR_API TSR_NODISCARD tsr_status tsr_text_stream_add(tsr_text_stream *stream, int32_t id,
                                                     const char **text, size_t *size_bytes,
                                                     bool *stopped);

/* Ends the text, if no stop string has done so, and gives what was held back. Errors:
 * TSR_ERR_NO_MEMORY; the stream has then not changed. */
TSR_API TSR_NODISCARD tsr_status tsr_text_stream_end(tsr_text_stream *stream, const char **text,
                                                     size_t *size_bytes);

/* What a model writes beside its answer. */
typedef enum tsr_text_channel {
    TSR_TEXT_ANSWER = 0,
    /* between <think> and </think>, or [THINK] and [/THINK], or harmony's channel "analysis" */
    TSR_TEXT_REASONING = 1,
    /* harmony's channel "commentary": calls of tools, and what the model says about them; the
     * arguments of calls after Mistral's [ARGS] */
    TSR_TEXT_COMMENTARY = 2
} tsr_text_channel;

/* Returns the channel of the text that the last call gave out. Always TSR_TEXT_ANSWER without
 * .channels. With it, tokens that begin or end a channel are recognised, if the vocabulary has
 * them, also in the prompt, whose last channel goes on: <think> and </think>; <|channel> and
 * <channel|> of Gemma 4; <|start|>, <|channel|> and <|message|> of gpt-oss; [THINK], [/THINK],
 * [TOOL_CALLS], [CALL_ID] and [ARGS] of Mistral's newer models. These tokens and the names between
 * them give no text. Line breaks after them, and those at the end of the reasoning, are left out.
 * Stop strings are searched in the answer only. */
TSR_API tsr_text_channel tsr_text_stream_channel(const tsr_text_stream *stream);

#define TSR_TEXT_STREAM_MAX_RECIPIENT 127 /* bytes */
/* Returns to whom the model wrote the text that the last call gave out, such as "functions.f" for
 * the arguments of a call in gpt-oss's format, or "f" in Mistral's; "": to the user, or a longer
 * name. Valid until the next call. Needs .channels. */
TSR_API const char *tsr_text_stream_recipient(const tsr_text_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
