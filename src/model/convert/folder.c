/* The files of the Hugging Face folder that a conversion writes, except the weights themselves. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "model/convert/config.h"
#include "model/convert/conversion.h"
#include "shard/formats/header_file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_write.h"
#include "tokenizer/word_expressions.h"

/* The arguments of the functions that print one JSON file. */
typedef struct document {
    const tsr__conversion *conversion;
    tsr_dtype dtype; /* the dtype of most weights */
    bool mxfp4;      /* experts are in MXFP4 */
} document;

static tsr_status write_document(tsr__conversion *c, const document *d, tsr__json_print_fn *print,
                                 const char *name)
{
    char *text = NULL;
    size_t length = 0;
    TSR__TRY(tsr__json_print_document(print, d, 0, &text, &length));
    const tsr_status status = tsr__output_file(&c->output, name, text, length);
    tsr__free(text);
    return status;
}

static void print_config(const void *user, tsr__json_writer *w)
{
    const document *d = user;
    tsr__config_print(d->conversion->config, d->dtype, d->mxfp4, w);
}

static void print_generation_config(const void *user, tsr__json_writer *w)
{
    const document *d = user;
    tsr__generation_config_print(d->conversion->config, w);
}

/* Weights -------------------------------------------------------------------------------------- */

static void print_header(const void *user, tsr__json_writer *w)
{
    const document *d = user;
    const tsr__conversion *c = d->conversion;
    tsr__json_print(w, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < c->count; i++) {
        const tsr__converted *t = &c->tensors[i];
        tsr__json_print(w, ",");
        tsr__json_print_string(w, t->name);
        tsr__json_print(w, ":{\"dtype\":\"%s\",\"shape\":[%" PRId64,
                        t->dtype == TSR_F16    ? "F16"
                        : t->dtype == TSR_BF16 ? "BF16"
                        : t->dtype == TSR_U8   ? "U8"
                                               : "F32",
                        t->shape[0]);
        for (int dim = 1; dim < t->ndim; dim++)
            tsr__json_print(w, ",%" PRId64, t->shape[dim]);
        tsr__json_print(w, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->at,
                        t->at + t->size_bytes);
    }
    tsr__json_print(w, "}");
    while (w->length % 8 != 0) /* the weights behind the header are aligned */
        tsr__json_print(w, " ");
}

static tsr_status write_header(tsr__conversion *c, const document *d, uint64_t weights_bytes)
{
    char *header = NULL;
    size_t length = 0;
    TSR__TRY(tsr__json_print_document(print_header, d, 8, &header, &length));
    tsr__put_u64((uint8_t *)header, length);
    tsr_status status =
        length > TSR__MAX_HEADER
            ? tsr__fail(TSR_ERR_INVALID, "convert: a header of %zu bytes is too long", length)
            : tsr__output_weights(&c->output, "model.safetensors", 8 + length + weights_bytes);
    if (status == TSR_OK)
        status = tsr__output_write(&c->output, header, 8 + length, 0);
    tsr__free(header);
    for (size_t i = 0; i < c->count; i++)
        c->tensors[i].at += 8 + length;
    return status;
}

static tsr_status write_weights_header(tsr__conversion *c, const document *d)
{
    uint64_t end = 0;
    for (size_t i = 0; i < c->count; i++) {
        tsr_shard_param param = tsr__conversion_param(&c->tensors[i]);
        TSR__TRY(tsr__param_resolve(&param));
        c->tensors[i].at = end;
        c->tensors[i].size_bytes = param.size_bytes;
        TSR__REQUIRE(tsr__add_u64(end, param.size_bytes, &end) && end <= INT64_MAX / 2,
                     "convert: the weights have more than 2^62 bytes");
    }
    return write_header(c, d, end);
}

/* The tokenizer -------------------------------------------------------------------------------- */

/* Copies a file of the source's folder, if there is one of this name. */
static tsr_status copy_file(tsr__conversion *c, const char *name)
{
    tsr__file file;
    char *path = tsr__path_join(c->files->folder, name), *bytes = NULL;
    tsr_status status = path ? tsr__file_open(path, &file) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        status = tsr__file_load(&file, 0, file.size, name, &bytes);
        if (status == TSR_OK)
            status = tsr__output_file(&c->output, name, bytes, (size_t)file.size);
        tsr__free(bytes);
        tsr__file_close(&file);
    }
    tsr__free(path);
    return status == TSR_ERR_NOT_FOUND ? TSR_OK : status;
}

static tsr_status copy_tokenizer(tsr__conversion *c)
{
    static const char *const names[] = {TSR__TOKENIZER_FILES};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TSR__TRY(copy_file(c, names[i]));
    return TSR_OK;
}

/* Writes a file of the tokenizer, whose contents `save` returns. */
static tsr_status write_saved(tsr__conversion *c, const char *name,
                              tsr_status (*save)(const tsr_tokenizer *tokenizer, char **out,
                                                 size_t *size))
{
    char *text = NULL;
    size_t size = 0;
    TSR__TRY(save(c->tokenizer, &text, &size));
    const tsr_status status = tsr__output_file(&c->output, name, text, size);
    tsr__free(text);
    return status;
}

static tsr_status write_tokenizer(tsr__conversion *c)
{
    if (!c->tokenizer)
        return TSR_OK;
    if (c->copies_tokenizer)
        return copy_tokenizer(c);
    if (tsr__word_splitter_changes(&c->tokenizer->words, false))
        tsr__conversion_note(c, "in tokenizer.json, words also end between small and capital "
                                "letters outside ASCII: such words get other tokens");
    TSR__TRY(c->tokenizer->kind == TSR_TOKENIZER_SPM
                 ? write_saved(c, "tokenizer.model", tsr__tokenizer_save_model)
                 : write_saved(c, "tokenizer.json", tsr__tokenizer_save_json));
    return write_saved(c, "tokenizer_config.json", tsr__tokenizer_save_config);
}

tsr_status tsr__conversion_begin_folder(tsr__conversion *c)
{
    document d = {.conversion = c, .dtype = c->tensors[0].dtype};
    for (size_t i = 0; i < c->count; i++)
        d.mxfp4 = d.mxfp4 || c->tensors[i].form != TSR__CONVERTED_ELEMENTS;
    TSR__TRY(write_document(c, &d, print_config, "config.json"));
    TSR__TRY(write_document(c, &d, print_generation_config, "generation_config.json"));
    TSR__TRY(write_tokenizer(c));
    return write_weights_header(c, &d);
}
