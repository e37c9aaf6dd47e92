/* Writes a tokenizer in the formats of models' files. A tokenizer that would give other ids is
 * refused with TSR_ERR_UNSUPPORTED and a text that names the reason. */
#ifndef TSR_TOKENIZER_SAVE_H
#define TSR_TOKENIZER_SAVE_H

#include "shard/formats/gguf_write.h"
#include "tokenizer/tokenizer.h"

/* Adds the keys tokenizer.ggml.*. The file has `vocabulary` tokens: unused ones follow those of the
 * tokenizer. ends[end_count] are tokens that end a text, as the model's configuration says. Sets
 * *drops_nfc if the tokenizer normalises text to NFC, which GGUF files cannot say. */
tsr_status tsr__tokenizer_put_gguf(const tsr_tokenizer *tokenizer, int64_t vocabulary,
                                   const int32_t *ends, int end_count, tsr__gguf_writer *writer,
                                   bool *drops_nfc) TSR_NODISCARD;

/* Gives the texts of tokenizer.json and tokenizer_config.json, of byte-level BPE. The caller must
 * free both. */
tsr_status tsr__tokenizer_save_json(const tsr_tokenizer *tokenizer, char **json, size_t *json_size,
                                    char **config, size_t *config_size) TSR_NODISCARD;

/* Gives the contents of tokenizer.model, of a tokenizer with scores. The caller must free them. */
tsr_status tsr__tokenizer_save_model(const tsr_tokenizer *tokenizer, uint8_t **out,
                                     size_t *size) TSR_NODISCARD;

/* Checks that the tokens around a text are BOS before it or none, and EOS after it or none. */
tsr_status tsr__tokenizer_check_around(const tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Records that a format cannot express something, and returns TSR_ERR_UNSUPPORTED. */
tsr_status tsr__tokenizer_cannot(const char *format, const char *what);

#endif
