/* Readers of the files that contain tokenizers. */
#ifndef TSR_TOKENIZER_TOKENIZER_READ_H
#define TSR_TOKENIZER_TOKENIZER_READ_H

#include "shard/formats/gguf_metadata.h"
#include "tokenizer/tokenizer.h"

/* The functions tsr__tokenizer_read_… fill an empty tokenizer and complete it. On an error, the
 * caller must still destroy it. */

/* Reads the keys tokenizer.* of a GGUF file. */
tsr_status tsr__tokenizer_read_gguf(tsr__file *file, tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* The same for a file whose keys are known already, so that its metadata are not read again; `keys`
 * may be NULL. */
tsr_status tsr__tokenizer_read_gguf_by_keys(tsr__file *file, const tsr__gguf_keys *keys,
                                            tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Reads tok….bin of llama2.c. */
tsr_status tsr__tokenizer_read_llama2c(tsr__file *file, tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Reads tokenizer.model of SentencePiece. */
tsr_status tsr__tokenizer_read_model(tsr__file *file, tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Reads tokenizer.model of SentencePiece, and adds the tokens that `added` has after those of the
 * file. Errors:
 * TSR_ERR_UNSUPPORTED if `added` does not begin with the file's tokens and ids. */
tsr_status tsr__tokenizer_read_model_with(tsr__file *file, const tsr_tokenizer *added,
                                          tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Reads text[size], the text of tokenizer.json. config[config_size] is the text of
 * tokenizer_config.json; `config` may be NULL. */
tsr_status tsr__tokenizer_read_json(const char *text, size_t size, const char *config,
                                    size_t config_size, tsr_tokenizer *tokenizer) TSR_NODISCARD;

/* Finds the chat template in config[size], the text of tokenizer_config.json: the member
 * "chat_template" if it is a string, or the template named "default" if it is a list. Sets *out to
 * a string that the caller must free, or to NULL if there is none. */
tsr_status tsr__tokenizer_chat_of_config(const char *config, size_t size, char **out) TSR_NODISCARD;

/* Opens the tokenizer of the GGUF file at `path`, whose keys these are. */
tsr_status tsr__tokenizer_open_gguf(const char *path, const tsr__gguf_keys *keys,
                                    tsr_tokenizer **out) TSR_NODISCARD;

/* Opens the tokenizer.model at `path` that belongs to `json`, a tokenizer with merges of
 * characters. Adds the tokens that only `json` has, and its chat template. Checks with some texts
 * that both tokenizers give the same ids. Errors: TSR_ERR_UNSUPPORTED if they do not. */
tsr_status tsr__tokenizer_open_scores(const char *path, const tsr_tokenizer *json,
                                      tsr_tokenizer **out) TSR_NODISCARD;

/* Sets what all SentencePiece-style tokenizers have in common: spaces become "▁", and if
 * `adds_space` is true, a text also gets one in front. Copies scores[tokens], and ranks the tokens
 * by them. The vocabulary has been indexed. */
tsr_status tsr__tokenizer_make_spm(tsr_tokenizer *tokenizer, const float *scores,
                                   bool adds_space) TSR_NODISCARD;

#endif
