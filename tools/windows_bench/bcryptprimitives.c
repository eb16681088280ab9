/* bcryptprimitives.dll: Rust's standard library takes random numbers from it, and Wine before 9 has none. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(void *buffer, ULONG length); /* RtlGenRandom, in advapi32 */

__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *buffer, SIZE_T length)
{
    for (SIZE_T done = 0; done < length;) {
        ULONG part = length - done < 0x10000 ? (ULONG)(length - done) : 0x10000;
        if (!SystemFunction036(buffer + done, part))
            return FALSE;
        done += part;
    }
    return TRUE;
}
