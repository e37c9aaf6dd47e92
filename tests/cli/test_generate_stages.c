/* Tests tessera generate with stages: any division of a model's layers, and parts of long
 * prompts. */
#include <stdio.h>
#include <string.h>

#include "cli/tool.h"
#include "cli/tool_config.h"
#include "support/check_main.h"

#define MODEL TEST_DATA "/model/stories260K-f16.gguf"

/* Tokens that the model generates. */
enum { RECORDED = 8 };
static const int recorded[RECORDED] = {403, 407, 261, 378, 432, 383, 286, 261};

/* Any division of the 5 layers over stages gives the text of one process. */
START_TEST(stages_have_the_layers_that_are_given)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    static const struct {
        int ranks;
        const char *options;
        int layers; /* of the first stage; 0: not checked */
    } cases[] = {
        {2, "--stages 2 --rates 1 --stage-layers 4,1", 4},
        {2, "--stages 2 --rates 30,1", 4},
        {2, "--stages 2 --rates measured", 0},
        {3, "--stage-layers 1,3,1", 1},
        {4, "--stages 2 --rates 3,1,1,5", 2},
        {2, "--rates measured", 5},
        {2, "--stages 2 --memory 300K,1M", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "launch --no-prefix -n %d -- " TEST_TOOL " generate " MODEL
                 " --ids 1 --greedy --max-tokens 8 --json %s",
                 cases[i].ranks, cases[i].options);
        json_t *document = tool_json(command, "tessera.generate");
        ck_assert_msg(strcmp(tool_text(document, "text"), "Once upon a time, there was a") == 0,
                      "%s: %s", cases[i].options, tool_text(document, "text"));
        const int layers = (int)tool_number(tool_member(document, "rank"), "layers");
        ck_assert_msg(cases[i].layers == 0 || layers == cases[i].layers, "%s: %d layers",
                      cases[i].options, layers);
        json_decref(document);
    }
    tool_fails("launch --no-prefix -n 4 -- " TEST_TOOL " generate " MODEL
               " --ids 1 --stages 2 --memory 1M,2M,3M",
               "tessera: generate: --memory has 3 values for 4 ranks\n");
    tool_fails("launch --no-prefix -n 4 -- " TEST_TOOL " generate " MODEL
               " --ids 1 --stages 2 --rates 1,2,3",
               "tessera: generate: --rates has 3 values for 4 ranks in stages of 2\n");
}
END_TEST

/* A long prompt passes through two stages in parts. Either the library chooses their size, or there
 * are more parts than one run of the stages takes, and the first part is shorter. */
START_TEST(stages_compute_parts_of_prompts)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    enum { TOKENS = 202 };
    char ids[TOKENS * 4 + 1] = "1", command[TOKENS * 4 + 400];
    static const char *const options[] = {"", "--stages 2 ", "--stages 2 --prefill 4 "};
    tool_result results[3];
    for (int i = 1; i < TOKENS; i++)
        snprintf(ids + strlen(ids), 5, ",%d", recorded[i % RECORDED]);
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof command,
                 "launch --no-prefix -n %d -- " TEST_TOOL " generate " MODEL
                 " --greedy --max-tokens 8 %s--ids %s",
                 i == 0 ? 1 : 2, options[i], ids);
        results[i] = tool_run(command);
        ck_assert_msg(results[i].exit_code == 0, "%s", results[i].err);
        ck_assert_str_eq(results[i].out, results[0].out);
    }
    for (int i = 0; i < 3; i++)
        tool_result_free(&results[i]);
}
END_TEST

TESTS(generate_stages)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, stages_have_the_layers_that_are_given);
    tcase_add_test(tests, stages_compute_parts_of_prompts);
}
