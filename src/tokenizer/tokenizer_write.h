/* Writes a tokenizer into the files of models. If a format cannot describe a tokenizer completely,
 * so that readers of the file would get other ids, the functions return TSR_ERR_UNSUPPORTED, and
 * the error text names the reason. */
#ifndef TSR_TOKENIZER_TOKENIZER_WRITE_H
#define TSR_TOKENIZER_TOKENIZER_WRITE_H

#include "shard/formats/gguf_write.h"
#include "tokenizer/tokenizer.h"

/* The names of all files that the tokenizer in a Hugging Face folder can have. */
#define TSR__TOKENIZER_FILES                                                                       \
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",       \
        "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja"

/* Writes the keys tokenizer.*. The file gets `vocabulary` tokens: unused ones follow those of the
 * tokenizer. `bos`, or -1, and ends[end_count] are the tokens that the model's configuration names
 * for the start and the end of a text. Sets *drops_nfc to whether the tokenizer normalises text to
 * NFC, which GGUF files cannot say. `phi3` says whether the model's name in the file is one of
 * Phi-3, which decides whether added tokens include the spaces after them (phi3_added_tokens.h). */
tsr_status tsr__tokenizer_put_gguf(const tsr_tokenizer *tokenizer, int64_t vocabulary, int32_t bos,
                                   const int32_t *ends, int end_count, bool phi3,
                                   tsr__gguf_writer *writer, bool *drops_nfc) TSR_NODISCARD;
/* Returns whether any added token includes the spaces after it. */
bool tsr__tokenizer_strips_right(const tsr_tokenizer *tokenizer);

/* Returns whether the tokenizer is one that GGUF files call "gemma4": merges of characters, spaces
 * that become "▁" and nothing else, a token for each byte, and BOS before each text. */
bool tsr__tokenizer_is_gemma4(const tsr_tokenizer *tokenizer);

/* Sets *out to the text of tokenizer.json for byte-level BPE, or a tokenizer like Gemma 4's. The
 * caller must free it. */
tsr_status tsr__tokenizer_save_json(const tsr_tokenizer *tokenizer, char **out,
                                    size_t *size) TSR_NODISCARD;
/* Sets *out to the text of tokenizer_config.json: special tokens and the chat template. The caller
 * must free it. */
tsr_status tsr__tokenizer_save_config(const tsr_tokenizer *tokenizer, char **out,
                                      size_t *size) TSR_NODISCARD;

/* Sets *out to the contents of tokenizer.model for a tokenizer with scores. The caller must free
 * them. */
tsr_status tsr__tokenizer_save_model(const tsr_tokenizer *tokenizer, char **out,
                                     size_t *size) TSR_NODISCARD;

/* Checks that the ids which are added to each text are at most BOS before it and EOS after it. */
tsr_status tsr__tokenizer_check_around(const tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Checks that added tokens are found wherever a text contains their spelling. `format` cannot
 * describe any other condition. If `may_strip` is true, tokens may include the spaces after
 * them. */
tsr_status tsr__tokenizer_check_added(const char *format, bool may_strip,
                                      const tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Records the error that `format` cannot say `what`, and returns TSR_ERR_UNSUPPORTED. */
tsr_status tsr__tokenizer_cannot(const char *format, const char *what);

#endif
