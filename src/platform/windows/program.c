/* Starts a program: converts its arguments to UTF-8, and switches off the translation of line ends
 * in its standard input and output. Programs link it with -municode, which makes the C library call
 * wmain. */
#include <fcntl.h>
#include <io.h>
#include <stdlib.h>
#include <windows.h>

#include "platform/windows/utf16.h"

int main(int argc, char **argv);
int wmain(int argc, wchar_t **argv);

/* Makes a console interpret escape sequences, as terminals of other systems do. */
static void obey_escapes(DWORD which)
{
    const HANDLE console = GetStdHandle(which);
    DWORD mode;
    if (GetConsoleMode(console, &mode))
        (void)SetConsoleMode(console, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

int wmain(int argc, wchar_t **argv)
{
    char **texts = calloc((size_t)argc + 1, sizeof *texts);
    for (int i = 0; texts && i < argc; i++)
        if (!(texts[i] = tsr__windows_utf8(argv[i])))
            return EXIT_FAILURE;
    if (!texts)
        return EXIT_FAILURE;
    for (int descriptor = 0; descriptor < 3; descriptor++)
        (void)_setmode(descriptor, _O_BINARY);
    (void)SetConsoleOutputCP(CP_UTF8);
    obey_escapes(STD_OUTPUT_HANDLE);
    obey_escapes(STD_ERROR_HANDLE);
    return main(argc, texts);
}
