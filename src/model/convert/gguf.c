/* The header of the GGUF file that a conversion writes. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/float16.h"
#include "model/convert/config.h"
#include "model/convert/mixture.h"
#include "tensor/dtype.h"
#include "tessera/quant.h"
#include "tokenizer/phi3_added_tokens.h"
#include "tokenizer/tokenizer_write.h"
#include "tokenizer/word_expressions.h"
#include "json/text_check.h"

/* Gives the number by which GGUF files name the dtype of most of their weights. Returns false if
 * the dtype has none. Source: github.com/ggml-org/ggml, docs/gguf.md, general.file_type. */
static bool file_type(tsr_dtype dtype, uint32_t *out)
{
    static const struct {
        tsr_dtype dtype;
        uint32_t number;
    } types[] = {{TSR_F32, 0},      {TSR_F16, 1},     {TSR_Q4_0, 2},     {TSR_Q4_1, 3},
                 {TSR_Q8_0, 7},     {TSR_Q5_0, 8},    {TSR_Q5_1, 9},     {TSR_Q2_K, 10},
                 {TSR_Q3_K, 11},    {TSR_Q4_K, 14},   {TSR_Q5_K, 16},    {TSR_Q6_K, 18},
                 {TSR_IQ2_XXS, 19}, {TSR_IQ2_XS, 20}, {TSR_IQ3_XXS, 23}, {TSR_IQ4_NL, 25},
                 {TSR_IQ3_S, 26},   {TSR_IQ2_S, 28},  {TSR_IQ4_XS, 30},  {TSR_BF16, 32},
                 {TSR_TQ1_0, 36},   {TSR_TQ2_0, 37},  {TSR_MXFP4, 38}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype) {
            *out = types[i].number;
            return true;
        }
    return false;
}

/* Returns the dtype that the most elements have. */
static tsr_dtype usual_dtype(const tsr__conversion *c)
{
    uint64_t counts[TSR__MAX_DTYPE + 1] = {0};
    tsr_dtype most = TSR_F32;
    for (size_t i = 0; i < c->count; i++)
        counts[c->tensors[i].dtype] += (uint64_t)(c->tensors[i].rows * c->tensors[i].columns);
    for (int i = 0; i <= TSR__MAX_DTYPE; i++)
        if (counts[i] > counts[most])
            most = (tsr_dtype)i;
    return most;
}

static tsr_status put_types(const tsr__conversion *c, tsr__gguf_writer *w)
{
    const tsr_dtype most = usual_dtype(c);
    uint32_t number;
    if (c->mixture)
        TSR__TRY(tsr__gguf_put_u32(w, "general.file_type", tsr__mixture_file_type(c->mixture)));
    else if (file_type(most, &number))
        TSR__TRY(tsr__gguf_put_u32(w, "general.file_type", number));
    return tsr_quant_format_of(most) ? tsr__gguf_put_u32(w, "general.quantization_version", 2)
                                     : TSR_OK;
}

/* Returns the size of name[size] without the ending that the first of several files of a model has,
 * such as "-00001-of-00003". */
static size_t without_part(const char *name, size_t size)
{
    static const char ending[] = "-00001-of-";
    const size_t fixed = sizeof ending - 1, digits = 5;
    if (size <= fixed + digits || memcmp(name + size - digits - fixed, ending, fixed) != 0)
        return size;
    for (size_t i = size - digits; i < size; i++)
        if (name[i] < '0' || name[i] > '9')
            return size;
    return size - digits - fixed;
}

/* Gives the name of the source's file or folder, without its ending, or "model" if that is not a
 * valid name. */
static void model_name(const tsr__conversion *c, char name[128])
{
    const char *path = c->files->gguf ? c->files->weights : c->files->folder;
    size_t end = strlen(path), start;
    while (end > 0 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/';)
        start--;
    if (c->files->gguf && end - start > 5)
        end = start + without_part(path + start, end - start - 5);
    snprintf(name, 128, "%.*s", end - start < 127 ? (int)(end - start) : 127, path + start);
    if (tsr__name_problem(name, strlen(name)))
        strcpy(name, "model");
}

/* Writes that there is no tokenizer, and the ids of BOS and of the tokens that end a text, which
 * are part of the model's configuration, too. */
static tsr_status put_no_tokenizer(const tsr_model_config *config, tsr__gguf_writer *w)
{
    static const char none[] = "none";
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    TSR__TRY(tsr__gguf_put_string(w, "tokenizer.ggml.model", none, strlen(none)));
    if (config->bos >= 0)
        TSR__TRY(tsr__gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)config->bos));
    for (int i = 0; i < config->end_count && i < 3; i++)
        TSR__TRY(tsr__gguf_put_u32(w, ends[i], (uint32_t)config->end[i]));
    return TSR_OK;
}

/* Readers conclude from a model's name whether its added tokens include the spaces after them.
 * Changes the name if that would be wrong. */
static void fit_name(const tsr__conversion *c, char name[128])
{
    static const char prefix[] = "phi-3 ";
    char own[128];
    const bool strips = c->tokenizer && tsr__tokenizer_strips_right(c->tokenizer),
               phi3 = tsr__is_phi3(name, strlen(name));
    if (!c->tokenizer || strips == phi3)
        return;
    strcpy(own, name);
    const size_t size = strlen(name);
    if (strips && size + sizeof prefix <= sizeof own) {
        memcpy(name, prefix, sizeof prefix - 1);
        memcpy(name + sizeof prefix - 1, own, size + 1);
    } else {
        strcpy(name, strips ? "phi-3" : "model");
    }
    tsr__conversion_note(c,
                         "the model is called \"%s\", not \"%s\", because readers of GGUF files "
                         "know from the name whether added tokens include the spaces after them",
                         name, own);
}

static tsr_status put_tokenizer(const tsr__conversion *c, const char *name, tsr__gguf_writer *w)
{
    const tsr_model_config *config = c->config;
    bool drops_nfc = false;
    if (!c->tokenizer)
        return put_no_tokenizer(config, w);
    TSR__TRY(tsr__tokenizer_put_gguf(c->tokenizer, config->vocabulary, config->bos, config->end,
                                     config->end_count, tsr__is_phi3(name, strlen(name)), w,
                                     &drops_nfc));
    if (drops_nfc)
        tsr__conversion_note(c, "GGUF files cannot say that the tokenizer normalises text to NFC: "
                                "text that is not in this form gets other tokens");
    if (tsr__word_splitter_changes(&c->tokenizer->words, true))
        tsr__conversion_note(c, "GGUF files cannot say that words end between small and capital "
                                "letters outside ASCII: such words get other tokens");
    return TSR_OK;
}

/* The divisors of rotary frequencies, which are the last tensors of the file. */
typedef struct factors {
    int count;
    tsr__rope_factors of[2];
    uint64_t at[2]; /* behind the header */
} factors;

static tsr_status put_tensors(tsr__conversion *c, factors *f, tsr__gguf_writer *w)
{
    uint64_t size;
    for (size_t i = 0; i < c->count; i++) {
        const tsr_shard_param param = tsr__conversion_param(&c->tensors[i]);
        TSR__TRY(tsr__gguf_put_tensor(w, &param, &c->tensors[i].at, &c->tensors[i].size_bytes));
    }
    for (int i = 0; i < f->count; i++) {
        const tsr_shard_param param = {
            .name = f->of[i].name, .dtype = "f32", .ndim = 1, .shape = {f->of[i].count}};
        TSR__TRY(tsr__gguf_put_tensor(w, &param, &f->at[i], &size));
    }
    return TSR_OK;
}

static tsr_status put_all(tsr__conversion *c, factors *f, tsr__gguf_writer *w)
{
    char name[128];
    model_name(c, name);
    fit_name(c, name);
    TSR__TRY(tsr__config_put_gguf(c->config, name, w));
    if (tsr__config_rotary_layer(c->config)->rope &&
        tsr__config_rotary_layer(c->config)->rope->exact_range)
        tsr__conversion_note(c, "YaRN has an exact range (truncate = false); programs other than "
                                "tessera will round it");
    if (tsr__config_gelu_is_exact(c->config))
        tsr__conversion_note(c, "the model has the exact GELU; programs other than tessera will "
                                "compute its approximation with tanh");
    TSR__TRY(put_types(c, w));
    TSR__TRY(put_tokenizer(c, name, w));
    return put_tensors(c, f, w);
}

static tsr_status write_factors(tsr__conversion *c, const factors *f, uint64_t header_bytes)
{
    uint8_t bytes[4 * TSR__MOST_PAIRS];
    for (int i = 0; i < f->count; i++) {
        for (int64_t k = 0; k < f->of[i].count; k++)
            tsr__put_u32(bytes + 4 * k, tsr__bits_of_f32(f->of[i].values[k]));
        TSR__TRY(tsr__output_write(&c->output, bytes, (uint64_t)f->of[i].count * 4,
                                   header_bytes + f->at[i]));
    }
    return TSR_OK;
}

/* Writes the header and the divisors of rotary frequencies. */
static tsr_status write_header(tsr__conversion *c, const tsr__gguf_writer *w, const factors *f)
{
    uint8_t *header = NULL;
    size_t size = 0;
    TSR__TRY(tsr__gguf_header(w, &header, &size));
    tsr_status status = tsr__output_weights(&c->output, NULL, size + w->weights_bytes);
    if (status == TSR_OK)
        status = tsr__output_write(&c->output, header, size, 0);
    tsr__free(header);
    TSR__TRY(status);
    for (size_t i = 0; i < c->count; i++)
        c->tensors[i].at += size;
    return write_factors(c, f, size);
}

tsr_status tsr__conversion_begin_gguf(tsr__conversion *c)
{
    tsr__gguf_writer w = {0};
    factors f;
    f.count = tsr__config_rope_factors(c->config, f.of);
    tsr_status status = put_all(c, &f, &w);
    if (status == TSR_OK)
        status = write_header(c, &w, &f);
    tsr__gguf_writer_finish(&w);
    return status;
}
