/* final_weights RECORDED.json MODEL.safetensors: compares a model that gpt has saved with the last
 * weights of a recorded training. RECORDED.json has norms and samples of these weights in 64 bits.
 * Prints the largest difference relative to a norm. Fails if a difference is above 1e-3, or if a
 * tensor is missing. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 1e-3

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "final_weights: %s: %s\n", name, what);
    exit(1);
}

/* Returns the file's bytes, in memory that is never freed. */
static unsigned char *read_all(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    size_t capacity = (size_t)1 << 26;
    unsigned char *bytes = malloc(capacity);
    if (!file || !bytes)
        fail("cannot be read", path);
    *size = fread(bytes, 1, capacity, file);
    if (*size < 8 || *size == capacity)
        fail("is too small or too large", path);
    fclose(file);
    return bytes;
}

static int digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : 0;
}

/* Decodes `count` little-endian doubles from base64. */
static void decode(const char *name, const char *text, size_t count, double *out)
{
    unsigned char *bytes = (unsigned char *)out;
    size_t size = count * sizeof *out;
    if (!text || strlen(text) != (size + 2) / 3 * 4)
        fail("has samples of another length", name);
    for (size_t i = 0; i < size; i++) {
        const char *four = text + i / 3 * 4;
        int bits =
            digit(four[0]) << 18 | digit(four[1]) << 12 | digit(four[2]) << 6 | digit(four[3]);
        bytes[i] = (unsigned char)(bits >> (16 - 8 * (int)(i % 3)));
    }
}

/* Returns whether a file with Hugging Face's names has the tensor transposed: a matrix in a GPT-2
 * block. */
static bool is_transposed(const char *name)
{
    return strncmp(name, "transformer.h.", 14) == 0 &&
           (strstr(name, ".attn.") != NULL || strstr(name, ".mlp.") != NULL);
}

/* Returns the larger of two differences, that of the norm and that of the samples, relative to the
 * norm. */
static double compare(const char *name, const json_t *recorded, const json_t *saved,
                      const float *data)
{
    const json_t *shape = json_object_get(recorded, "shape");
    const json_t *values = json_object_get(recorded, "values");
    size_t rows = (size_t)json_integer_value(json_array_get(shape, 0));
    size_t columns =
        json_array_size(shape) == 2 ? (size_t)json_integer_value(json_array_get(shape, 1)) : 1;
    size_t n = rows * columns;
    const json_t *range = json_object_get(saved, "data_offsets");
    size_t first = (size_t)json_integer_value(json_array_get(range, 0));
    size_t end = (size_t)json_integer_value(json_array_get(range, 1));
    const char *dtype = json_string_value(json_object_get(saved, "dtype"));
    if (!dtype || strcmp(dtype, "F32") != 0 || end - first != n * sizeof *data || n == 0)
        fail("is missing, or of another size or dtype", name);
    data += first / sizeof *data;
    size_t m = (size_t)json_integer_value(json_array_get(json_object_get(values, "shape"), 0));
    double *samples = malloc((m + 1) * sizeof *samples), sum = 0, difference = 0, squares = 0;
    if (m == 0 || !samples)
        fail("has no samples", name);
    decode(name, json_string_value(json_object_get(values, "b64")), m, samples);
    for (size_t i = 0; i < n; i++)
        sum += (double)data[i] * (double)data[i];
    for (size_t i = 0; i < m; i++) {
        size_t at = m > 1 ? i * (n - 1) / (m - 1) : 0;
        if (is_transposed(name))
            at = at % columns * rows + at / columns;
        difference += pow((double)data[at] - samples[i], 2);
        squares += samples[i] * samples[i];
    }
    free(samples);
    double norm = json_number_value(json_object_get(recorded, "l2"));
    double of_norm = fabs(sqrt(sum) - norm) / norm, of_samples = sqrt(difference / squares);
    return of_norm > of_samples || isnan(of_norm) ? of_norm : of_samples;
}

int main(int argc, char **argv)
{
    double worst = 0;
    const char *name, *of = "";
    json_t *recorded;
    if (argc != 3)
        fail("usage: final_weights RECORDED.json MODEL.safetensors", "usage");
    size_t size, header = 0;
    unsigned char *bytes = read_all(argv[2], &size);
    for (int i = 7; i >= 0; i--)
        header = header << 8 | bytes[i];
    if (header > size - 8)
        fail("has a wrong header", argv[2]);
    json_t *saved = json_loadb((const char *)bytes + 8, header, 0, NULL);
    json_t *root = json_load_file(argv[1], 0, NULL), *final = json_object_get(root, "final");
    if (!saved || json_object_size(final) == 0)
        fail("has no final weights", argv[1]);
    float *data = malloc(size);
    if (!data)
        fail("out of memory", argv[2]);
    memcpy(data, bytes + 8 + header, size - 8 - header);
    json_object_foreach(final, name, recorded)
    {
        double difference = compare(name, recorded, json_object_get(saved, name), data);
        if (!(difference <= worst)) {
            worst = difference;
            of = name;
        }
    }
    printf("last weights differ by %.1e (%s)\n", worst, of);
    free(data);
    free(bytes);
    json_decref(saved);
    json_decref(root);
    return !(worst <= LIMIT);
}
