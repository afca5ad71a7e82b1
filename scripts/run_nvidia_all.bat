@echo off
rem Starts scripts/run_nvidia_all.sh in the Windows Subsystem for Linux, in this folder, with the same arguments.
where wsl >nul 2>nul
if errorlevel 1 (
  echo WSL is missing. Install it with: wsl --install
  exit /b 3
)
wsl --cd "%~dp0.." bash scripts/run_nvidia_all.sh %*
exit /b %ERRORLEVEL%
