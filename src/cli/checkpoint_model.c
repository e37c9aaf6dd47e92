#include "cli/checkpoint_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/lib/command.h"
#include "cli/lib/json.h"
#include "cli/lib/numbers.h"
#include "cli/lib/table.h"
#include "cli/lib/terminal.h"
#include "tool_seam.h"

bool checkpoint_is_model(const char *path)
{
    struct stat info;
    char text[4096];
    if (stat(path, &info) != 0)
        return false;
    if (S_ISDIR(info.st_mode)) {
        snprintf(text, sizeof text, "%s/config.json", path);
        return stat(text, &info) == 0;
    }
    FILE *file = fopen(path, "rb");
    const size_t count = file != NULL ? fread(text, 1, 4, file) : 0;
    if (file != NULL)
        fclose(file);
    return count == 4 && memcmp(text, "GGUF", 4) == 0;
}

static const char *format_shape(const tsr_shard_param *tensor, char text[TSR__SHAPE_TEXT])
{
    return tsr__shape_format(tensor->ndim, tensor->shape, text, TSR__SHAPE_TEXT);
}

/* Returns the first layer with attention, or the first one. */
static const tsr_model_layer *usual_layer(const tsr_model_config *c)
{
    for (int i = 0; i < c->layers; i++)
        if (c->kinds[c->layer_kinds[i]]->heads > 0)
            return c->kinds[c->layer_kinds[i]];
    return c->kinds[0];
}

static void print_text(const char *path, const tsr_model_file *file)
{
    char text[TSR__SHAPE_TEXT], bytes[CLI_BYTES_TEXT];
    const tsr_model_config *c = tsr_model_file_config(file);
    const tsr_model_layer *layer = usual_layer(c);
    const tsr_shard_list *list = file->files.list;
    const uint64_t count = tsr_shard_list_param_count(list);
    cli_line(stdout,
             "%s: %s, %d layer%s, width %" PRId64 ", %" PRId64 " heads, %" PRId64
             " kv heads of %" PRId64 ", %" PRId64 " hidden features, %" PRId64 " tokens, context "
             "%" PRId64,
             path, c->architecture, c->layers, CLI_PLURAL(c->layers), c->width, layer->heads,
             layer->kv_heads, layer->head_dim, layer->hidden, c->vocabulary, c->context);
    if (c->kind_count > 1)
        cli_line(stdout, "Heads and features are those of the first of %d kinds of layers.",
                 c->kind_count);
    for (int i = 0; i < c->kind_count; i++) {
        const tsr_model_experts *e = c->kinds[i]->experts;
        if (!e)
            continue;
        cli_line(stdout,
                 "%" PRId64 " experts of %" PRId64
                 " hidden features, of which a token uses %" PRId64 "%s",
                 e->count, e->hidden, e->used, e->shared_hidden > 0 ? ", and a shared one" : "");
        break;
    }
    putchar('\n');
    cli_table *table = cli_table_create();
    cli_table_column(table, "tensor", CLI_LEFT);
    cli_table_column(table, "dtype", CLI_LEFT);
    cli_table_column(table, "shape", CLI_LEFT);
    cli_table_column(table, "size", CLI_RIGHT);
    for (uint64_t i = 0; i < count; i++) {
        const tsr_shard_param *tensor = tsr_shard_list_param(list, i);
        cli_table_cell(table, "%s", tensor->name);
        cli_table_cell(table, "%s", tensor->dtype);
        cli_table_cell(table, "%s", format_shape(tensor, text));
        cli_table_cell(table, "%s", cli_bytes(tensor->size_bytes, bytes));
    }
    cli_table_print(table, stdout, 0);
    cli_table_destroy(&table);
}

static void add_config(json_t *document, const tsr_model_config *c)
{
    const tsr_model_layer *layer = usual_layer(c);
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        {"layers", c->layers},         {"width", c->width},           {"heads", layer->heads},
        {"kv_heads", layer->kv_heads}, {"head_dim", layer->head_dim}, {"hidden", layer->hidden},
        {"vocabulary", c->vocabulary}, {"context", c->context},
    };
    json_t *model = cli_json_add_object(document, "model");
    cli_json_text(model, "architecture", c->architecture);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        cli_json_u64(model, sizes[i].name, (uint64_t)sizes[i].value);
}

static void print_json(const tsr_model_file *file)
{
    const tsr_shard_list *list = file->files.list;
    json_t *document = cli_json_document("tessera.checkpoint", 1);
    add_config(document, tsr_model_file_config(file));
    json_t *tensors = cli_json_add_array(document, "tensors");
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++) {
        const tsr_shard_param *tensor = tsr_shard_list_param(list, i);
        json_t *object = cli_json_append_object(tensors);
        cli_json_text(object, "name", tensor->name);
        cli_json_text(object, "dtype", tensor->dtype);
        json_t *shape = cli_json_add_array(object, "shape");
        for (int d = 0; d < tensor->ndim; d++)
            cli_json_append(shape, json_integer(tensor->shape[d]));
        cli_json_u64(object, "bytes", tensor->size_bytes);
    }
    cli_json_print(document);
}

int checkpoint_show_model(const char *path, bool json)
{
    tsr_model_file *file = NULL;
    if (tsr_model_file_open(path, &file) != TSR_OK)
        return cli_failed_in("checkpoint show", tsr_last_error());
    if (json)
        print_json(file);
    else
        print_text(path, file);
    tsr_model_file_close(&file);
    return CLI_DONE;
}
