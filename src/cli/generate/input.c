/* The prompt of tessera generate from standard input. */
#include <stdlib.h>
#include <string.h>

#include "cli/generate/generate.h"
#include "cli/lib/input.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

/* Reads standard input without its last line break. */
static int read_text(char **text, size_t *size)
{
    const int code = cli_input_read("generate", TSR_TOKENIZER_MAX_TEXT, text, size);
    if (code != CLI_DONE)
        return code;
    if (*size > 0 && (*text)[*size - 1] == '\n')
        *size -= *size > 1 && (*text)[*size - 2] == '\r' ? 2 : 1;
    (*text)[*size] = '\0';
    if (*size > 0)
        return CLI_DONE;
    free(*text);
    *text = NULL;
    return cli_usage_error("generate: missing --prompt TEXT or --ids LIST, and standard input is "
                           "empty");
}

int generate_read_input(inference_job *job)
{
    tsr_status status = inference_join(job);
    if (status != TSR_OK)
        return cli_failed("generate: %s", tsr_last_error());
    char *text = NULL;
    size_t size = 0;
    const int code = job->first ? read_text(&text, &size) : CLI_DONE;
    /* The negative exit code if rank 0 has no prompt. Rank 0 has printed the reason. */
    int64_t sent = code == CLI_DONE ? (int64_t)size : -(int64_t)code;
    status = tsr_comm_broadcast(job->comm, &sent, 1, TSR_I64, 0, NULL);
    if (code != CLI_DONE)
        return code;
    if (status == TSR_OK && sent < 0)
        return (int)-sent;
    if (status == TSR_OK && !job->first)
        text = cli_alloc((size_t)sent + 1, 1);
    if (status == TSR_OK)
        status = tsr_comm_broadcast(job->comm, text, (uint64_t)sent, TSR_U8, 0, NULL);
    if (status != TSR_OK) {
        free(text);
        return cli_failed("generate: %s", tsr_last_error());
    }
    generate_chosen.input = text;
    generate_chosen.prompts[0] = (generate_prompt){.text = text, .size = (size_t)sent};
    generate_chosen.prompt_count = 1;
    return CLI_DONE;
}
