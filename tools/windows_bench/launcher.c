/* python.exe: what CPython's own does. It finds python3XX.dll beside itself, so no import library is needed. */
#include <windows.h>
#include <wchar.h>

int _dowildcard = 0; /* MinGW's start-up code leaves "*" in an argument as it is */

int wmain(int argc, wchar_t **argv)
{
    HMODULE python = LoadLibraryW(PYTHON_DLL);
    FARPROC run = python ? GetProcAddress(python, "Py_Main") : NULL;
    if (!run)
        return (int)GetLastError();
    return ((int(__cdecl *)(int, wchar_t **))run)(argc, argv);
}
