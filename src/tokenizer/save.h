/* Writes a tokenizer in the formats of models' files. A tokenizer that would give other ids in the
 * format is refused with TSR_ERR_UNSUPPORTED, and the error text names the reason. */
#ifndef TSR_TOKENIZER_SAVE_H
#define TSR_TOKENIZER_SAVE_H

#include "shard/formats/gguf_write.h"
#include "tokenizer/tokenizer.h"

/* Writes the keys tokenizer.*. The file gets `vocabulary` tokens: unused ones follow those of the
 * tokenizer. `bos`, or -1, and ends[end_count] are the tokens that the model's configuration names
 * for the start and the end of a text. Sets *drops_nfc to whether the tokenizer normalises text to
 * NFC, which GGUF files cannot say. `phi3` says whether the model's name in the file is one of
 * Phi-3, which decides whether added tokens include the spaces after them (phi3.h). */
tsr_status tsr__tokenizer_put_gguf(const tsr_tokenizer *tokenizer, int64_t vocabulary, int32_t bos,
                                   const int32_t *ends, int end_count, bool phi3,
                                   tsr__gguf_writer *writer, bool *drops_nfc) TSR_NODISCARD;
/* Returns whether an added token includes the spaces after it. */
bool tsr__tokenizer_strips_right(const tsr_tokenizer *tokenizer);

/* Sets *out to the text of tokenizer.json for byte-level BPE. The caller must free it. */
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

/* Checks that the tokens around a text are BOS before it or none, and EOS after it or none. */
tsr_status tsr__tokenizer_check_around(const tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Checks that added tokens are searched as they are spelled, without conditions on what is beside
 * them, because `format` cannot say these. With `may_strip`, tokens may include the spaces after
 * them. */
tsr_status tsr__tokenizer_check_added(const char *format, bool may_strip,
                                      const tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Records the error that `format` cannot say `what`, and returns TSR_ERR_UNSUPPORTED. */
tsr_status tsr__tokenizer_cannot(const char *format, const char *what);

#endif
