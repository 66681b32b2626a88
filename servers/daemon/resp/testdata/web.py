# A web application whose sessions are in the server, by Flask-Session, at the port that is its argument.
import sys

import redis
from flask import Flask, session
from flask_session import Session

app = Flask("test")
app.config.update(SESSION_TYPE="redis", SESSION_REDIS=redis.Redis(port=int(sys.argv[1])), SECRET_KEY="k")
Session(app)


@app.route("/count")
def count():
    session["n"] = session.get("n", 0) + 1
    return str(session["n"])


@app.route("/out")
def out():
    session.clear()
    return "out"


a, b = app.test_client(), app.test_client()
assert [a.get("/count").text for _ in range(3)] == ["1", "2", "3"]
assert b.get("/count").text == "1" and a.get("/count").text == "4"
a.get("/out")
assert a.get("/count").text == "1" and b.get("/count").text == "2"
