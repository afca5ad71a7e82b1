// How the page is built: one script, one style sheet, nothing inline, so that the content security policy holds.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [svelte()],
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: false, reportCompressedSize: false },
});
