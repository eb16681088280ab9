"""Single lines, as people paste them: the cause that each names."""

from __future__ import annotations

import pytest

from sage_attention.toolchain.explain import explain

MESSAGES = {
    "ptxas error   : Value 'sm_120' is not defined for option 'gpu-name'": "cuda_arch_unsupported_by_nvcc",
    "RTX 5090 with CUDA capability sm_120 is not compatible with this PyTorch.": "cuda_arch_not_compiled",
    "RuntimeError: CUDA error: cudaErrorUnsupportedPtxVersion": "cuda_driver_too_old",
    "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).": "cuda_driver_too_old",
    "OSError: mysql_config: not found": "dependency_headers_missing",
    "This application failed to start because no Qt platform plugin could be initialized.": "qt_platform_plugin",
    "Microsoft Visual C++ Redistributable is not installed, this may lead to DLL failure.": "missing_runtime_dll",
    "munmap_chunk(): invalid pointer": "access_violation_crash",
    "The command '/bin/sh -c python train.py' returned: exit code 139": "access_violation_crash",
    "Error: Process completed with exit code 132.": "illegal_instruction",
    "##[error]Process completed with exit code 134.": "fast_fail_crash",
    "code signature in (x.so) not valid for use in process: library validation failed": "macos_code_signature",
    "Could not find platform independent libraries <prefix>": "venv_broken",
    "fatal: the remote end hung up unexpectedly": "git_missing",
    "Compiler crash in AnalyseExpressionsTransform": "cython3_break",
    "error: no default toolchain configured": "rust_missing",
    "RuntimeError: torchvision: Not compiled with CUDA support": "extension_built_without_cuda",
    "RuntimeError: Couldn't load custom C++ ops. Your PyTorch may be incompatible": "torchvision_torch_mismatch",
    "AttributeError: '_OpNamespace' 'torch_scatter' object has no attribute 'x'": "torch_extension_binary_missing",
    "gzip.BadGzipFile: Not a gzipped file (b'<!')": "download_corrupt",
    "ssl.SSLError: [SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1002)": "tls_certificate_error",
    "error: Unable to find a compatible Visual Studio installation.": "compiler_missing",
    "x.exe : The current Python version (3.9.2) does not satisfy Python>=3.10": "no_wheel_for_python_version",
    "ImportError: cannot import name 'Feature' from 'setuptools' (/x/__init__.py)": "setuptools_removed_feature",
    "error: use of 'x' requires at least '/std:c++20'": "cxx_standard_too_old",
    "Die Eingabezeile ist zu lang.": "vswhere_or_vcvars_failed",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_message(message):
    answer = explain(message)
    assert answer.verdict == "explained"
    assert answer.findings[0].cause == MESSAGES[message]
