/* The prompts of tessera generate that are in files or come from standard input. */
#include <stdlib.h>
#include <string.h>

#include "cli/generate/generate.h"
#include "cli/lib/input.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

/* Reads a text without its last line break. */
static int read_text(const char *file, char **text, size_t *size)
{
    const int code = cli_file_read("generate", file, TSR_TOKENIZER_MAX_TEXT, text, size);
    if (code != CLI_DONE)
        return code;
    if (*size > 0 && (*text)[*size - 1] == '\n')
        *size -= *size > 1 && (*text)[*size - 2] == '\r' ? 2 : 1;
    (*text)[*size] = '\0';
    if (*size > 0)
        return CLI_DONE;
    free(*text);
    *text = NULL;
    return strcmp(file, "-") == 0
               ? cli_usage_error("generate: missing --prompt TEXT, --file FILE or --ids LIST, and "
                                 "standard input is empty")
               : cli_failed("generate: %s is empty", file);
}

/* Reads one prompt on rank 0, and sends it to the other ranks. */
static int read_prompt(inference_job *job, generate_prompt *prompt)
{
    const int code = job->first ? read_text(prompt->file, &prompt->read, &prompt->size) : CLI_DONE;
    /* The negative exit code if rank 0 has no prompt. Rank 0 has printed the reason. */
    int64_t sent = code == CLI_DONE ? (int64_t)prompt->size : -(int64_t)code;
    tsr_status status = tsr_comm_broadcast(job->comm, &sent, 1, TSR_I64, 0, NULL);
    if (code != CLI_DONE)
        return code;
    if (status == TSR_OK && sent < 0)
        return (int)-sent;
    if (status == TSR_OK && !job->first)
        prompt->read = cli_alloc((size_t)sent + 1, 1);
    if (status == TSR_OK)
        status = tsr_comm_broadcast(job->comm, prompt->read, (uint64_t)sent, TSR_U8, 0, NULL);
    if (status != TSR_OK)
        return cli_failed("generate: %s", tsr_last_error());
    prompt->text = prompt->read;
    prompt->size = (size_t)sent;
    return CLI_DONE;
}

int generate_read_input(inference_job *job)
{
    int code = CLI_DONE;
    for (int i = 0; i < generate_chosen.prompt_count && code == CLI_DONE; i++) {
        if (generate_chosen.prompts[i].file == NULL)
            continue;
        if (inference_join(job) != TSR_OK)
            return cli_failed("generate: %s", tsr_last_error());
        code = read_prompt(job, &generate_chosen.prompts[i]);
    }
    return code;
}

void generate_free_input(void)
{
    for (int i = 0; i < generate_chosen.prompt_count; i++)
        free(generate_chosen.prompts[i].read);
}
