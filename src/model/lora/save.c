/* Writes adapters. The first rank of each stage gathers A and B of its layers, and all stages write
 * them as PEFT has them. A GGUF file is made from that by the first rank of the first stage. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/lora/lora.h"
#include "model/weights/source.h"
#include "parallel/internal.h"
#include "shard/formats/gguf_write.h"

typedef struct saved_tensor {
    char name[TSR__LORA_NAME];
    tsr_tensor *memory;
    bool is_vector; /* the file has it without its dimension of one column */
} saved_tensor;

typedef struct saving {
    tsr_lora *lora;
    bool writes; /* this rank is the first of its stage */
    saved_tensor *tensors;
    size_t count, capacity;
} saving;

/* Gathering ---------------------------------------------------------------------------------- */

static tsr_status gather(const tsr_lora *lora, const char *name, tsr_tensor **out)
{
    const tsr_layer *set = lora->adapter.layer;
    for (int i = 0; i < tsr_layer_parameter_count(set); i++)
        if (strcmp(tsr_layer_parameter(set, i)->name, name) == 0)
            return tsr_layer_gather_parameter(set, i, out);
    return tsr__fail(TSR_ERR_NOT_FOUND, "lora: there is no parameter %s", name);
}

/* Gives the tensor called `name`. A new one is [rows, columns], with zeros. */
static tsr_status need_tensor(saving *s, const char *name, int64_t rows, int64_t columns,
                              saved_tensor **out)
{
    const int64_t shape[2] = {rows, columns};
    void *tensors = s->tensors;
    if (s->count > 0 && strcmp(s->tensors[s->count - 1].name, name) == 0) {
        *out = &s->tensors[s->count - 1];
        return TSR_OK;
    }
    TSR__TRY(tsr__grow(&tensors, &s->capacity, s->count + 1, sizeof *s->tensors));
    s->tensors = tensors;
    saved_tensor *added = &s->tensors[s->count];
    *added = (saved_tensor){0};
    snprintf(added->name, sizeof added->name, "%s", name);
    TSR__TRY(tsr_tensor_create(s->lora->stack->device, TSR_F32, 2, shape, &added->memory));
    s->count++;
    *out = added;
    return tsr_fill(s->lora->stack->stream, added->memory, 0);
}

/* Keeps runs of rows of a matrix, which have others between them in the tensor of the file. */
static tsr_status keep_runs(saving *s, const char *name, const tsr__lora_place *place,
                            const tsr_tensor *matrix)
{
    const tsr_layout *layout = tsr_tensor_layout(matrix);
    const int64_t run = place->row_order.run;
    saved_tensor *to;
    TSR__TRY(need_tensor(s, name, place->all_rows, layout->shape[1], &to));
    tsr_status status = TSR_OK;
    for (int64_t i = 0; status == TSR_OK && i < layout->shape[0]; i += run) {
        const int64_t at = place->first_row + tsr__order_in_file(&place->row_order, i);
        tsr_tensor *from = NULL, *rows = NULL;
        status = tsr_tensor_slice(matrix, 0, i, i + run, 1, &from);
        if (status == TSR_OK)
            status = tsr_tensor_slice(to->memory, 0, at, at + run, 1, &rows);
        if (status == TSR_OK)
            status = tsr_copy(s->lora->stack->stream, rows, from);
        tsr_tensor_destroy(&from);
        tsr_tensor_destroy(&rows);
    }
    return status;
}

/* Keeps a matrix as rows `first_row` … of a tensor of the file. */
static tsr_status keep_rows(saving *s, const char *name, int64_t all_rows, int64_t first_row,
                            const tsr_tensor *matrix)
{
    const tsr_layout *layout = tsr_tensor_layout(matrix);
    saved_tensor *to;
    tsr_tensor *rows = NULL;
    TSR__TRY(need_tensor(s, name, all_rows, layout->shape[1], &to));
    TSR__TRY(tsr_tensor_slice(to->memory, 0, first_row, first_row + layout->shape[0], 1, &rows));
    const tsr_status status = tsr_copy(s->lora->stack->stream, rows, matrix);
    tsr_tensor_destroy(&rows);
    return status;
}

/* Keeps the matrices of all experts as views of the gathered tensor. */
static tsr_status keep_experts(saving *s, const tsr__lora_module *m, char which,
                               const tsr_tensor *matrices)
{
    void *tensors = s->tensors;
    TSR__TRY(tsr__grow(&tensors, &s->capacity, s->count + (size_t)m->experts, sizeof *s->tensors));
    s->tensors = tensors;
    for (int64_t e = 0; e < m->experts; e++) {
        saved_tensor *added = &s->tensors[s->count];
        tsr__lora_place place;
        *added = (saved_tensor){0};
        TSR__TRY(tsr__lora_find_place(s->lora->stack, m, e, false, &place));
        tsr__lora_file_name(&place, false, which, added->name);
        TSR__TRY(tsr_tensor_select(matrices, 0, e, &added->memory));
        s->count++;
    }
    return TSR_OK;
}

/* Keeps B, or magnitudes as a matrix of one column, as the rows of a tensor of the file that they
 * are. */
static tsr_status keep_outputs(saving *s, const char *name, const tsr__lora_place *place,
                               const tsr_tensor *matrix)
{
    return place->row_order.run > 0 ? keep_runs(s, name, place, matrix)
                                    : keep_rows(s, name, place->all_rows, place->first_row, matrix);
}

/* Keeps magnitudes as rows of a vector of the file. */
static tsr_status keep_magnitudes(saving *s, const char *name, const tsr__lora_place *place,
                                  const tsr_tensor *magnitudes)
{
    const int64_t shape[2] = {tsr_tensor_layout(magnitudes)->shape[0], 1};
    tsr_tensor *column = NULL;
    TSR__TRY(tsr_tensor_reshape(magnitudes, 2, shape, &column));
    const tsr_status status = keep_outputs(s, name, place, column);
    tsr_tensor_destroy(&column);
    if (status == TSR_OK)
        s->tensors[s->count - 1].is_vector = true;
    return status;
}

/* Gathers A, B or the magnitudes of a module. */
static tsr_status save_half(saving *s, const tsr__lora_module *m, char which)
{
    char parameter[TSR__LORA_NAME], name[TSR__LORA_NAME];
    tsr__lora_place place;
    tsr_tensor *matrix = NULL;
    TSR__TRY(tsr__lora_parameter_name(s->lora->stack, m, which, parameter));
    TSR__TRY(tsr__lora_find_place(s->lora->stack, m, 0, false, &place));
    tsr__lora_file_name(&place, false, which, name);
    TSR__TRY(gather(s->lora, parameter, &matrix));
    tsr_status status = TSR_OK;
    if (s->writes && which == 'M')
        status = keep_magnitudes(s, name, &place, matrix);
    else if (s->writes && m->experts > 0)
        status = keep_experts(s, m, which, matrix);
    else if (s->writes)
        status = which == 'A' ? keep_rows(s, name, m->rank, 0, matrix)
                              : keep_outputs(s, name, &place, matrix);
    tsr_tensor_destroy(&matrix);
    return status;
}

/* All A of a layer come before all B, and these before all magnitudes, so that weights of one
 * tensor follow each other. */
static tsr_status gather_modules(saving *s)
{
    const tsr_lora *lora = s->lora;
    for (size_t i = 0; i < lora->module_count;) {
        const int layer = lora->modules[i].layer;
        size_t next = i;
        while (next < lora->module_count && lora->modules[next].layer == layer)
            next++;
        const bool is_here = tsr__lora_layer(lora->stack, layer) != NULL;
        for (size_t j = i; is_here && j < next; j++)
            TSR__TRY(save_half(s, &lora->modules[j], 'A'));
        for (size_t j = i; is_here && j < next; j++)
            TSR__TRY(save_half(s, &lora->modules[j], 'B'));
        for (size_t j = i; is_here && lora->dora && j < next; j++)
            TSR__TRY(save_half(s, &lora->modules[j], 'M'));
        i = next;
    }
    return TSR_OK;
}

static tsr_status gather_all(saving *s)
{
    tsr_fsdp *sharded = s->lora->adapter.sharded;
    if (!sharded)
        return gather_modules(s);
    TSR__TRY(tsr_fsdp_begin(sharded, 0, TSR_PASS_FORWARD));
    const tsr_status status = gather_modules(s);
    if (status == TSR_OK)
        return tsr_fsdp_end(sharded, 0);
    tsr__fsdp_abandon(sharded, 0);
    return status;
}

/* Writing ------------------------------------------------------------------------------------ */

static tsr_status write_tensors(saving *s, const char *path, tsr_comm *stages)
{
    if (!s->writes)
        return TSR_OK;
    tsr_checkpoint_entry *entries = tsr__calloc(s->count + 1, sizeof *entries);
    if (!entries)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        const tsr_layout *layout = tsr_tensor_layout(s->tensors[i].memory);
        entries[i] =
            (tsr_checkpoint_entry){.struct_size = sizeof *entries,
                                   .name = s->tensors[i].name,
                                   .dtype = TSR_F32,
                                   .ndim = s->tensors[i].is_vector ? 1 : 2,
                                   .shape = {layout->shape[0], layout->shape[1]},
                                   .shard_dim = -1,
                                   .count = (uint64_t)(layout->shape[0] * layout->shape[1]),
                                   .tensor = s->tensors[i].memory};
    }
    const tsr_status status =
        tsr_checkpoint_save(path, stages, s->lora->stack->stream, (int)s->count, entries,
                            tsr_checkpoint_params(.stages = stages));
    tsr__free(entries);
    return status;
}

static tsr_status cannot(const char *what, const char *path)
{
    return tsr__fail(TSR_ERR_IO, "lora: cannot %s %s: %s", what, path, strerror(errno));
}

static tsr_status rename_file(const char *from, const char *to)
{
    return rename(from, to) == 0 ? TSR_OK : cannot("rename a file to", to);
}

/* Writes the file `partial`, and removes it on failure. */
static tsr_status write_partial(const char *partial, const void *first, size_t first_size,
                                const void *rest, size_t rest_size)
{
    FILE *file = fopen(partial, "wb");
    bool written = file && fwrite(first, 1, first_size, file) == first_size &&
                   fwrite(rest, 1, rest_size, file) == rest_size && fflush(file) == 0 &&
                   fsync(fileno(file)) == 0;
    tsr_status status = written ? TSR_OK : cannot("write", partial);
    if (file && fclose(file) != 0 && status == TSR_OK)
        status = cannot("write", partial);
    if (status != TSR_OK && file)
        (void)remove(partial);
    return status;
}

/* Writes a file under a temporary name, and renames it. */
static tsr_status write_file(const char *path, const void *first, size_t first_size,
                             const void *rest, size_t rest_size)
{
    char *partial = tsr__path_join(path, ".partial");
    if (!partial)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = write_partial(partial, first, first_size, rest, rest_size);
    if (status == TSR_OK) {
        status = rename_file(partial, path);
        if (status != TSR_OK)
            (void)remove(partial);
    }
    tsr__free(partial);
    return status;
}

/* GGUF --------------------------------------------------------------------------------------- */

/* The number that llama.cpp divides by the rank to get the scale. */
static double alpha_of(const tsr_lora *lora, const tsr__lora_module *m)
{
    return (double)tsr__lora_scale(lora, m) * (double)m->rank;
}

/* Returns which row of a tensor that has a place is row i of our matrix. */
static int64_t row_in_file(const tsr__lora_place *place, int64_t i)
{
    const int64_t head = place->interleaved_head, in = head > 0 ? i % head : 0;
    if (head > 0)
        return place->first_row + i - in + in % (head / 2) * 2 + in / (head / 2);
    return place->first_row + tsr__order_in_file(&place->row_order, i);
}

typedef struct gguf_file {
    const tsr_lora *lora;
    tsr__model_files from;
    tsr__gguf_writer writer;
    double alpha; /* of the whole file */
    uint8_t *weights;
    uint64_t at;                  /* where the next tensor's values start in `weights` */
    char last[2][TSR__LORA_NAME]; /* the last A and the last B, and where their values start */
    uint64_t last_at[2];
} gguf_file;

static tsr_status put_keys(gguf_file *f)
{
    const char *family = f->lora->stack->family->gguf;
    TSR__TRY(tsr__gguf_put_string(&f->writer, "general.architecture", family, strlen(family)));
    TSR__TRY(tsr__gguf_put_string(&f->writer, "general.type", "adapter", 7));
    TSR__TRY(tsr__gguf_put_string(&f->writer, "adapter.type", "lora", 4));
    f->alpha = alpha_of(f->lora, &f->lora->modules[0]);
    return tsr__gguf_put_f32(&f->writer, "adapter.lora.alpha", (float)f->alpha);
}

/* Finds a tensor of the PEFT file: that of one expert, or of the only matrix; and its place. */
static tsr_status find_source(const gguf_file *f, const tsr__lora_module *m, int64_t expert,
                              char which, tsr__lora_place *place, const tsr_shard_param **out)
{
    char name[TSR__LORA_NAME];
    TSR__TRY(tsr__lora_find_place(f->lora->stack, m, expert, false, place));
    tsr__lora_file_name(place, false, which, name);
    *out = tsr__model_files_find(&f->from, name);
    TSR__REQUIRE(*out, "lora: tensor %s is missing", name);
    return TSR_OK;
}

/* Copies the rows of B of a module, with the factor that the GGUF file needs, to the rows of its
 * tensor. */
static void copy_outputs(const float *values, const tsr__lora_place *from, double factor,
                         const tsr__lora_module *m, const tsr__lora_place *to, float *out)
{
    for (int64_t i = 0; i < m->outputs; i++) {
        const float *row = values + row_in_file(from, i) * m->rank;
        float *own = out + row_in_file(to, i) * m->rank;
        for (int64_t r = 0; r < m->rank; r++)
            own[r] = factor == 1 ? row[r] : (float)((double)row[r] * factor);
    }
}

/* Copies A of a module, of which both files may have the columns in another order. */
static void copy_inputs(const float *values, const tsr__lora_place *from, const tsr__lora_module *m,
                        const tsr__lora_place *to, float *out)
{
    for (int64_t r = 0; r < m->rank; r++)
        for (int64_t i = 0; i < m->inputs; i++)
            out[r * m->inputs + tsr__order_in_file(&to->column_order, i)] =
                values[r * m->inputs + tsr__order_in_file(&from->column_order, i)];
}

/* Copies A or B of one expert, or of the only matrix, to its tensor in the GGUF file. */
static tsr_status copy_values(const gguf_file *f, tsr__weight_source *source,
                              const tsr__lora_module *m, int64_t expert, char which,
                              const tsr__lora_place *to, float *out)
{
    const tsr_shard_param *from;
    tsr__lora_place place;
    TSR__TRY(find_source(f, m, expert, which, &place, &from));
    const uint64_t count = (uint64_t)(from->shape[0] * from->shape[1]);
    float *values = tsr__calloc((size_t)count, sizeof *values);
    if (!values)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = tsr__weight_source_read(source, from, 0, count * 4, values);
    if (status == TSR_OK && which == 'A')
        copy_inputs(values, &place, m, to, out);
    else if (status == TSR_OK)
        copy_outputs(values, &place, alpha_of(f->lora, m) / f->alpha, m, to, out);
    tsr__free(values);
    return status;
}

/* Adds A or B of a module to the header or, in the second pass, its values to the weights. Weights
 * that share a tensor follow each other. */
static tsr_status add_tensor(gguf_file *f, tsr__weight_source *source, const tsr__lora_module *m,
                             int half)
{
    const char which = half == 0 ? 'A' : 'B';
    const int64_t matrices = m->experts > 0 ? m->experts : 1;
    char name[TSR__LORA_NAME];
    tsr__lora_place place;
    uint64_t offset = 0, bytes = 0;
    TSR__TRY(tsr__lora_find_place(f->lora->stack, m, 0, true, &place));
    tsr__lora_file_name(&place, true, which, name);
    if (tsr__adapter_is_of_heads(tsr__lora_targets[m->target].ours))
        return tsr__fail(
            TSR_ERR_UNSUPPORTED,
            "lora: tensor %s: GGUF adapters of the keys and values of latent attention "
            "are not supported",
            name);
    const int64_t rows = half == 0 ? m->rank : place.all_rows,
                  columns = half == 0 ? m->inputs : m->rank;
    const uint64_t size = (uint64_t)(rows * columns) * sizeof(float);
    const bool is_new = strcmp(name, f->last[half]) != 0;
    if (is_new) {
        strcpy(f->last[half], name);
        f->last_at[half] = f->at;
        f->at += tsr__align_up_u64((uint64_t)matrices * size, TSR__GGUF_ALIGNMENT);
    }
    if (!f->weights) {
        tsr_shard_param to = {.struct_size = sizeof to, .name = name, .dtype = "F32", .ndim = 2};
        if (m->experts > 0)
            to.shape[to.ndim++ - 2] = matrices;
        to.shape[to.ndim - 2] = rows;
        to.shape[to.ndim - 1] = columns;
        return is_new ? tsr__gguf_put_tensor(&f->writer, &to, &offset, &bytes) : TSR_OK;
    }
    for (int64_t e = 0; e < matrices; e++)
        TSR__TRY(copy_values(f, source, m, e, which, &place,
                             (float *)(f->weights + f->last_at[half] + (uint64_t)e * size)));
    return TSR_OK;
}

static tsr_status add_tensors(gguf_file *f, tsr__weight_source *source)
{
    f->at = 0;
    f->last[0][0] = f->last[1][0] = '\0';
    for (size_t i = 0; i < f->lora->module_count; i++)
        for (int half = 0; half < 2; half++)
            TSR__TRY(add_tensor(f, source, &f->lora->modules[i], half));
    return TSR_OK;
}

static tsr_status write_gguf(gguf_file *f, const char *path)
{
    uint8_t *header = NULL;
    size_t size = 0;
    tsr__weight_source source;
    TSR__TRY(put_keys(f));
    TSR__TRY(add_tensors(f, NULL));
    TSR__TRY(tsr__gguf_header(&f->writer, &header, &size));
    f->weights = tsr__calloc((size_t)f->writer.weights_bytes + TSR__GGUF_ALIGNMENT, 1);
    tsr_status status = f->weights ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        tsr__weight_source_init("lora", &f->from, &source);
        status = add_tensors(f, &source);
        tsr__weight_source_finish(&source);
    }
    if (status == TSR_OK)
        status = write_file(path, header, size, f->weights, (size_t)f->writer.weights_bytes);
    tsr__free(f->weights);
    tsr__free(header);
    return status;
}

/* Converts the PEFT tensors in the file `from`. */
static tsr_status convert(const tsr_lora *lora, const char *from, const char *path)
{
    gguf_file f = {.lora = lora};
    tsr_status status = tsr__model_files_open_weights(from, &f.from);
    if (status == TSR_OK)
        status = write_gguf(&f, path);
    tsr__gguf_writer_finish(&f.writer);
    tsr__model_files_finish(&f.from);
    return status;
}

/* Saving ------------------------------------------------------------------------------------- */

static tsr_status save_gguf(saving *s, const char *path, tsr_comm *stages)
{
    char *tensors = tsr__path_join(path, ".safetensors");
    tsr_status status = tensors ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = write_tensors(s, tensors, stages);
    if (status == TSR_OK && s->writes && s->lora->stack->is_first)
        status = convert(s->lora, tensors, path);
    if (tensors && s->writes && s->lora->stack->is_first)
        (void)remove(tensors);
    tsr__free(tensors);
    return status;
}

/* The files of a PEFT folder, and the names under which they are written first. */
typedef struct peft_paths {
    char *tensors, *config, *new_tensors, *new_config;
} peft_paths;

/* Writes both files under their first names. */
static tsr_status write_peft(saving *s, const peft_paths *paths, bool is_first, tsr_comm *stages)
{
    char *text = NULL;
    size_t length = 0;
    tsr_status status = write_tensors(s, paths->new_tensors, stages);
    if (status == TSR_OK && is_first)
        status = tsr__lora_config_print(s->lora, &text, &length);
    if (status == TSR_OK && is_first)
        status = write_partial(paths->new_config, text, length, NULL, 0);
    tsr__free(text);
    return status;
}

/* Gives both files their names. The configuration comes first, so that new tensors never stand
 * beside an old one. */
static tsr_status rename_peft(const peft_paths *paths)
{
    tsr_status status = rename_file(paths->new_config, paths->config);
    if (status == TSR_OK)
        status = rename_file(paths->new_tensors, paths->tensors);
    return status;
}

static tsr_status save_peft(saving *s, const char *folder, tsr_comm *stages)
{
    const peft_paths paths = {tsr__path_join(folder, "/adapter_model.safetensors"),
                              tsr__path_join(folder, "/adapter_config.json"),
                              tsr__path_join(folder, "/adapter_model.safetensors.new"),
                              tsr__path_join(folder, "/adapter_config.json.new")};
    const bool is_first = s->writes && s->lora->stack->is_first,
               good = paths.tensors && paths.config && paths.new_tensors && paths.new_config;
    tsr_status status = good ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK && s->writes && mkdir(folder, 0777) != 0 && errno != EEXIST)
        status = cannot("create folder", folder);
    if (status == TSR_OK)
        status = write_peft(s, &paths, is_first, stages);
    if (status == TSR_OK && is_first)
        status = rename_peft(&paths);
    if (status != TSR_OK && good && is_first) {
        (void)remove(paths.new_config);
        (void)remove(paths.new_tensors);
    }
    tsr__free(paths.tensors);
    tsr__free(paths.config);
    tsr__free(paths.new_tensors);
    tsr__free(paths.new_config);
    return status;
}

tsr_status tsr_lora_save(tsr_lora *lora, const char *path, tsr_lora_format format, tsr_comm *stages)
{
    TSR__REQUIRE(lora && path, "lora: %s is NULL", lora ? "path" : "lora");
    TSR__REQUIRE(format == TSR_LORA_PEFT || format == TSR_LORA_GGUF,
                 "lora: format %d is not a tsr_lora_format", (int)format);
    if (lora->dora && format == TSR_LORA_GGUF)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "lora: adapter '%s' has magnitudes (DoRA), which GGUF files cannot have",
                         lora->name);
    tsr_fsdp *sharded = lora->adapter.sharded;
    saving s = {.lora = lora,
                .writes = tsr_group_rank(lora->stack->group) == 0 &&
                          (!sharded || tsr_group_rank(lora->data) == 0)};
    tsr_status status = gather_all(&s);
    if (status == TSR_OK)
        status =
            format == TSR_LORA_PEFT ? save_peft(&s, path, stages) : save_gguf(&s, path, stages);
    for (size_t i = 0; i < s.count; i++)
        tsr_tensor_destroy(&s.tensors[i].memory);
    tsr__free(s.tensors);
    return status;
}
