#include "model/tiny.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/check.h"

static FILE *create(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    return file;
}

/* Writes the header of the weights. Returns the size of the weights in bytes. */
static uint64_t write_header(char *header, size_t size, int vocabulary)
{
    static const struct {
        const char *name;
        int rows, columns; /* rows 0: as many as tokens; columns 0: one dimension */
    } tensors[] = {{"model.embed_tokens.weight", 0, 32},
                   {"model.norm.weight", 32, 0},
                   {"model.layers.0.input_layernorm.weight", 32, 0},
                   {"model.layers.0.self_attn.q_proj.weight", 32, 32},
                   {"model.layers.0.self_attn.k_proj.weight", 32, 32},
                   {"model.layers.0.self_attn.v_proj.weight", 32, 32},
                   {"model.layers.0.self_attn.o_proj.weight", 32, 32},
                   {"model.layers.0.post_attention_layernorm.weight", 32, 0},
                   {"model.layers.0.mlp.gate_proj.weight", 32, 32},
                   {"model.layers.0.mlp.up_proj.weight", 32, 32},
                   {"model.layers.0.mlp.down_proj.weight", 32, 32}};
    uint64_t end = 0;
    size_t length = 0;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const int rows = tensors[i].rows > 0 ? tensors[i].rows : vocabulary,
                  columns = tensors[i].columns;
        const uint64_t start = end;
        char shape[32];
        end += 4 * (uint64_t)rows * (uint64_t)(columns > 0 ? columns : 1);
        snprintf(shape, sizeof shape, columns > 0 ? "%d,%d" : "%d", rows, columns);
        length += (size_t)snprintf(header + length, size - length,
                                   "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":"
                                   "[%llu,%llu]}",
                                   i > 0 ? "," : "{", tensors[i].name, shape,
                                   (unsigned long long)start, (unsigned long long)end);
    }
    strcat(header, "}");
    return end;
}

void tiny_model(const char *folder, int vocabulary, const char *more)
{
    char header[4096] = "";
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    FILE *file = create(folder, "config.json");
    fprintf(file,
            "{\"model_type\": \"llama\", \"hidden_size\": 32, \"num_hidden_layers\": 1, "
            "\"num_attention_heads\": 2, \"intermediate_size\": 32, \"vocab_size\": %d, "
            "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true%s}",
            vocabulary, more);
    ck_assert_int_eq(fclose(file), 0);
    file = create(folder, "model.safetensors");
    const uint64_t weights = write_header(header, sizeof header, vocabulary),
                   length = strlen(header);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> (8 * i) & 255), file);
    fputs(header, file);
    ck_assert_int_eq(fflush(file), 0);
    ck_assert_int_eq(ftruncate(fileno(file), (off_t)(8 + length + weights)), 0);
    ck_assert_int_eq(fclose(file), 0);
}
