"""Functions that are linked into compiled programs: LLVM code only, from which each program makes its machine code.

Numba optimizes a function and makes machine code of it also where only compiled code calls it, and then does so again
for each of its callers. Done once, for the whole program, a compilation takes less time.
"""

from __future__ import annotations

import weakref
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba._dynfunc import make_function  # type: ignore[import-not-found, import-untyped, unused-ignore]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import NativeLowering


class _Library(JITCodeLibrary):
    """The LLVM code of a function and of those that it calls."""

    def _optimize_final_module(self) -> None:
        """Leave the optimization to the program, into which the function is linked."""

    def _finalize_final_module(self) -> None:
        """Check the code as Numba does, and make no machine code of it."""
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._verify_declare_only_symbols()  # type: ignore[no-untyped-call]
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Insert(LoweringPass):
    """Makes a function known to its callers, by an object in place of the function that Python would call."""

    _name = "marltrain_insert"

    def __init__(self) -> None:
        """See LoweringPass."""
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        """See LoweringPass."""
        lowered = state.cr
        key = make_function(
            lowered.fndesc.lookup_module(), lowered.fndesc.qualname, "", 0, lowered.env, (state.library,)
        )
        state.targetctx.insert_user_function(key, lowered.fndesc, [state.library])
        state.cr = lowered._replace(cfunc=key)
        _set_environment(state, state.targetctx.get_env_name(lowered.fndesc), lowered.env)
        return True


def _set_environment(state: Any, name: str, environment: Any) -> None:
    """Define the variable with a function's Python objects, which it needs to print and to raise exceptions.

    Every program that the function is linked into shares the variable.
    """
    codegen = state.targetctx.codegen()
    module = codegen._create_empty_module(name)
    variable = ir.GlobalVariable(module, ir.IntType(64), name)
    variable.linkage, variable.initializer = "common", ir.Constant(ir.IntType(64), 0)
    remove = codegen._add_module(binding.parse_assembly(str(module)))
    if remove:
        weakref.finalize(state.library, remove)
    codegen._engine.finalize_object()
    codegen.set_env(name, environment)


class LinkedCompiler(CompilerBase):
    """Numba's compiler, up to the LLVM code."""

    def define_pipelines(self) -> list[Any]:
        """See CompilerBase."""
        state: Any = self.state
        state.flags.no_compile = True
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)  # type: ignore[no-untyped-call]
        passes: Any = DefaultPassBuilder.define_nopython_pipeline(state)  # type: ignore[no-untyped-call]
        passes.add_pass_after(_Insert, NativeLowering)
        passes.finalize()
        return [passes]
