@echo off
rem Starts scripts/start-multi-gpu.sh in the Windows Subsystem for Linux, in the folder it is called from, with the same arguments.
setlocal DisableDelayedExpansion
where wsl >nul 2>nul
if errorlevel 1 (
  echo WSL is missing. Install it with: wsl --install
  exit /b 3
)
wsl --exec bash -lc "exec bash \"$(wslpath \"$0\")\" \"$@\"" "%~dp0wsl.sh" start-multi-gpu.sh %*
exit /b %ERRORLEVEL%
