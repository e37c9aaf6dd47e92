/* Writes a tokenizer in the formats of models' files. A tokenizer that would give other ids is
 * refused with TSR_ERR_UNSUPPORTED and a text that names the reason. */
#ifndef TSR_TOKENIZER_SAVE_H
#define TSR_TOKENIZER_SAVE_H

#include "shard/formats/gguf_write.h"
#include "tokenizer/tokenizer.h"

/* Adds the keys tokenizer.ggml.*. The file has `vocabulary` tokens: unused ones follow those of the
 * tokenizer. `bos`, or -1, and ends[end_count] are the tokens at the beginning and end of a text
 * that the model's configuration names. Sets *drops_nfc if the tokenizer normalises text to NFC,
 * which GGUF files cannot say. */
tsr_status tsr__tokenizer_put_gguf(const tsr_tokenizer *tokenizer, int64_t vocabulary, int32_t bos,
                                   const int32_t *ends, int end_count, tsr__gguf_writer *writer,
                                   bool *drops_nfc) TSR_NODISCARD;

/* Gives the text of tokenizer.json, of byte-level BPE. The caller must free it. */
tsr_status tsr__tokenizer_save_json(const tsr_tokenizer *tokenizer, char **out,
                                    size_t *size) TSR_NODISCARD;
/* Gives the text of tokenizer_config.json: special tokens and the chat template. The caller must
 * free it. */
tsr_status tsr__tokenizer_save_config(const tsr_tokenizer *tokenizer, char **out,
                                      size_t *size) TSR_NODISCARD;

/* Gives the contents of tokenizer.model, of a tokenizer with scores. The caller must free them. */
tsr_status tsr__tokenizer_save_model(const tsr_tokenizer *tokenizer, char **out,
                                     size_t *size) TSR_NODISCARD;

/* Checks that the tokens around a text are BOS before it or none, and EOS after it or none. */
tsr_status tsr__tokenizer_check_around(const tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Records that a format cannot express something, and returns TSR_ERR_UNSUPPORTED. */
tsr_status tsr__tokenizer_cannot(const char *format, const char *what);

#endif
