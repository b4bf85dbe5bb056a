import "./style.css";
import { render } from "preact";
import { App } from "./app.js";
import { start } from "./state.js";

render(<App />, document.getElementById("app") as HTMLElement);
void start();
